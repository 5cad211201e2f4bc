#include "training/loop/training_start.h"

#include <fmt/ranges.h>

#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "training/checkpoint/weights.h"
#include "training/loop/early_stopping.h"
#include "training/loop/time_limit.h"

namespace seqfuse::training {

TrainingStart::TrainingStart(models::hstu::TaskModel& model, const config::TrainerArgs& args,
                             StepUpdate& update, BatchStream& stream, RunSchedule& schedule,
                             TrainingState& state, distributed::ProcessGroup& group)
    : model_(model),
      args_(args),
      update_(update),
      stream_(stream),
      schedule_(schedule),
      state_(state),
      group_(group) {}

void TrainingStart::load(Checkpoint& checkpoint, const embeddings::LoadOptions& options) {
  check_same_weights(model_, model_.tables(), checkpoint, options);
  load_dense(model_, model_.tables(), checkpoint);
  if (group_.several()) {
    loaded_tables_ = {.contents = std::move(checkpoint.tables), .options = options};
  } else {
    load_tables(model_.tables(), checkpoint.tables, options);
  }
}

void TrainingStart::resume(Checkpoint checkpoint, bool grown) {
  check_same_model(checkpoint.state, model_.spec());
  load(checkpoint, {.all_ids = !grown});
  set_state(checkpoint.state, checkpoint.optimizer);
  saved_step_ = state_.step;
}

void TrainingStart::load_weights_of(Checkpoint checkpoint, bool grown) {
  const std::vector<std::string> others = compare_with_weights(checkpoint.state, model_.spec());
  if (!others.empty()) {
    log::info("train", "the weights come from a model that differs in\n  {}",
              fmt::join(others, "\n  "));
  }
  load(checkpoint, {.state = false, .all_ids = !grown});
}

void TrainingStart::set_state(const nlohmann::json& state, const TensorMap& optimizer) {
  state_ = state_from_json(state, model_.spec(), args_.seed);
  update_.load(state_, optimizer);
  const int64_t saved_with = std::exchange(state_.users_per_batch, stream_.users_per_batch());
  if (saved_with != state_.users_per_batch) {
    state_.batch = stream_.position_after(state_.batch, saved_with);
    log::info("train", "batches had {} users and now have {}: losses will differ", saved_with,
              state_.users_per_batch);
  }
  stream_.seek(state_.batch);
  schedule_.count_steps(state_);
  forget_best_of_other_metric(args_, state_);
}

void TrainingStart::share() {
  if (!group_.several()) return;
  allow(group_, args_, "start");
  // Other processes may not have found the files that the first one started from.
  const auto state = nlohmann::json::parse(group_.broadcast(
      state_to_json(state_, model_.spec(), args_.seed).dump(), "broadcast of the state"));
  TensorMap dense = update_.optimizer().state();
  dense.merge(dense_weights(model_, model_.tables()));
  for (const auto& [name, tensor] : dense) {
    group_.broadcast(std::vector{tensor}, "broadcast of weights");
  }
  const auto loaded = std::exchange(loaded_tables_, std::nullopt);
  // Only the first process knows whether it has read tables. If not, all have the same rows.
  if (group_.broadcast(loaded ? "loaded" : "", "broadcast of the state") == "loaded") {
    load_tables(model_.tables(), loaded ? loaded->contents : TableMap(),
                loaded ? loaded->options : embeddings::LoadOptions());
  }
  set_state(state, update_.optimizer().state());
  saved_step_ = state_.step > 0 ? state_.step : -1;
}

}  // namespace seqfuse::training
