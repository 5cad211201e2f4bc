// Trainer: where it starts from, and how all processes get there.
#include <fmt/ranges.h>

#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "training/checkpoint/weights.h"
#include "training/loop/loop.h"

namespace seqfuse::training {

TensorMap Trainer::tensors_here() const {
  TensorMap tensors = optimizer_.state();
  tensors.merge(named_weights(model_));
  return tensors;
}

void Trainer::load(Checkpoint& checkpoint) {
  whole_rows_ = table_tensors_.take_whole(checkpoint, tensors_here());
  load_weights(model_, checkpoint);
}

void Trainer::resume(Checkpoint checkpoint) {
  check_same_model(checkpoint.state, model_.spec());
  load(checkpoint);
  set_state(checkpoint.state, checkpoint.optimizer);
  saved_step_ = state_.step;
}

void Trainer::start_from(Checkpoint checkpoint) {
  const std::vector<std::string> others = compare_with_weights(checkpoint.state, model_.spec());
  if (!others.empty()) {
    log::info("train", "the weights come from a model that differs in\n  {}",
              fmt::join(others, "\n  "));
  }
  checkpoint.optimizer.clear();
  load(checkpoint);
}

void Trainer::set_state(const nlohmann::json& state, const TensorMap& optimizer) {
  state_ = state_from_json(state, model_.spec(), config_.trainer.seed);
  optimizer_.load_state(optimizer, state_.optimizer_steps);
  loss_positions_read_ = state_.loss_positions;
  if (device_) device_->load(state_);
  if (const int64_t before = std::exchange(state_.users_per_batch, stream_.users_per_batch());
      before != state_.users_per_batch) {
    state_.batch = stream_.position_after(state_.batch, before);
    log::info("train", "batches had {} users and now have {}: losses will differ", before,
              state_.users_per_batch);
  }
  stream_.seek(state_.batch);
  count_steps();
  const std::string& metric = config_.trainer.early_stopping_metric;
  if (!state_.watched.empty() && !metric.empty() && metric != state_.watched) {
    // What was best by another metric says nothing of this one.
    state_.best_step = -1;
    state_.best_metrics.clear();
    state_.evaluations_since_best = 0;
  }
}

void Trainer::share_start() {
  if (!group_.several()) return;
  allow("start", kLongSeconds);
  // The first process may have found its own files alone, or none.
  const auto state = nlohmann::json::parse(group_.broadcast(
      state_to_json(state_, model_.spec(), config_.trainer.seed).dump(), "broadcast of the state"));
  table_tensors_.share(tensors_here(), std::exchange(whole_rows_, {}), group_);
  set_state(state, optimizer_.state());
  saved_step_ = state_.step > 0 ? state_.step : -1;
}

}  // namespace seqfuse::training
