// Trainer: what it saves, and what it says and saves when something fails.
#include <cmath>
#include <exception>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "training/checkpoint/weights.h"
#include "training/loop/loop.h"
#include "training/loop/out_of_memory.h"

namespace seqfuse::training {

void Trainer::save(bool last) {
  allow(fmt::format("checkpoint of step {}", state_.step), kLongSeconds);
  if (device_) {
    Step unlogged;
    read_device(unlogged);
  }
  const Optimizer::Averages averages(optimizer_);
  check_weights();
  state_.optimizer_steps = optimizer_.steps();
  if (device_) device_->save(state_);
  Checkpoint checkpoint;
  checkpoint.step = state_.step;
  collect_weights(model_, checkpoint);
  checkpoint.optimizer = optimizer_.state();
  table_tensors_.gather(checkpoint);
  bool saved = true;
  if (group_.is_first()) {  // of what is not sharded, the others have the same
    checkpoint.state = state_to_json(state_, model_.spec(), config_.trainer.seed);
    saved = writer_->save(checkpoint, last);
  }
  // All must agree on whether it is to be tried again.
  if (group_.several()) {
    saved = group_.broadcast(saved ? "saved" : "not", "outcome of the checkpoint") == "saved";
  }
  if (saved) saved_step_ = state_.step;
}

// A checkpoint holds finite weights only.
void Trainer::check_weights() {
  std::vector<std::string> names;
  std::vector<torch::Tensor> finite;
  for (const auto& parameter : model_.named_parameters()) {
    names.push_back(parameter.key());
    finite.push_back(torch::isfinite(parameter.value().detach()).all());
  }
  const torch::Tensor all = torch::stack(finite).cpu();
  for (size_t i = 0; i < names.size(); ++i) {
    if (all[static_cast<int64_t>(i)].item<bool>()) continue;
    fail_not_finite(names[i].c_str(), std::numeric_limits<double>::quiet_NaN(), state_.step);
  }
}

void Trainer::fail_not_finite(const char* what, double value, int64_t step) {
  throw_error(
      "{} is {} in step {} (epoch {}); {}\n  lower OptimizerArgs.learning_rate, set max_grad_norm, "
      "or add warmup_steps",
      what, std::abs(value), step, epoch_of(state_.batch) + 1, writer_->last_checkpoint());
}

void Trainer::stop_saved(const std::exception& error, const std::string& what,
                         const std::string& advice) {
  if (is_out_of_memory(error)) {
    throw_error("out of memory in {}: {}\n  {}{}", what, message_of(error), save_after_fault(),
                advice);
  }
  if (dynamic_cast<const DataError*>(&error) == nullptr) throw;
  throw_error<DataError>("{}\n  found in {}; {}; then --resume", error.what(), what,
                         save_after_fault());
}

std::string Trainer::save_after_fault() {
  if (updating_) {
    return "the update was under way, so the weights may be half changed and are not saved; " +
           writer_->last_checkpoint();
  }
  // What others hold or do now is not known.
  if (group_.several()) return writer_->last_checkpoint();
  if (saved_step_ != state_.step) {
    optimizer_.zero_gradients();
    graphs_.reset();  // their memory
    release_cached_memory(model_.device());
    try {
      save(/*last=*/true);
    } catch (const std::exception& error) {
      return fmt::format("the state after step {} could not be saved either ({}); {}", state_.step,
                         message_of(error), writer_->last_checkpoint());
    }
  }
  return fmt::format("the state after step {} is saved in {}", state_.step,
                     writer_->path().string());
}

}  // namespace seqfuse::training
