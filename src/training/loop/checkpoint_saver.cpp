#include "training/loop/checkpoint_saver.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <limits>
#include <string>
#include <vector>

#include "training/checkpoint/weights.h"
#include "training/loop/not_finite.h"
#include "training/loop/time_limit.h"

namespace seqfuse::training {
namespace {

// Refuses to save weights that are not finite.
void check_weights(const models::Model& model, int64_t step) {
  std::vector<std::string> names;
  std::vector<torch::Tensor> finite;
  for (const auto& parameter : model.named_parameters()) {
    names.push_back(parameter.key());
    finite.push_back(torch::isfinite(parameter.value().detach()).all());
  }
  const torch::Tensor all = torch::stack(finite).cpu();
  for (size_t i = 0; i < names.size(); ++i) {
    if (all[static_cast<int64_t>(i)].item<bool>()) continue;
    throw NotFinite(names[i], std::numeric_limits<double>::quiet_NaN(), step);
  }
}

}  // namespace

CheckpointSaver::CheckpointSaver(models::hstu::TaskModel& model, StepUpdate& update,
                                 const config::TrainerArgs& args, distributed::ProcessGroup& group,
                                 RunWriter& writer, int64_t saved_step)
    : model_(model),
      update_(update),
      args_(args),
      group_(group),
      writer_(writer),
      saved_step_(saved_step) {}

// The same for rows that are no parameters, which only the first process has now.
void CheckpointSaver::check_tables(const Checkpoint& checkpoint) const {
  std::string name;
  if (group_.is_first()) name = table_not_finite(model_.tables(), checkpoint.tables);
  if (group_.several()) name = group_.broadcast(name, "check of the checkpoint");
  if (!name.empty()) {
    throw NotFinite(name, std::numeric_limits<double>::quiet_NaN(), checkpoint.step);
  }
}

void CheckpointSaver::save(TrainingState& state, bool last) {
  allow(group_, args_, fmt::format("checkpoint of step {}", state.step));
  Step unlogged;
  update_.read_losses(unlogged);
  state.loss_sum += unlogged.loss_sum;
  const Optimizer::Averages averages(update_.optimizer());
  check_weights(model_, state.step);
  update_.save(state);
  Checkpoint checkpoint;
  checkpoint.step = state.step;
  collect_weights(model_, model_.tables(), checkpoint);
  check_tables(checkpoint);
  checkpoint.optimizer = update_.optimizer().state();
  bool saved = true;
  if (group_.is_first()) {  // everything not sharded is the same in all processes
    checkpoint.state = state_to_json(state, model_.spec(), args_.seed);
    saved = writer_.save(checkpoint, last);
  }
  // All processes must agree on whether to retry.
  if (group_.several()) {
    saved = group_.broadcast(saved ? "saved" : "not", "outcome of the checkpoint") == "saved";
  }
  if (saved) saved_step_ = state.step;
}

}  // namespace seqfuse::training
