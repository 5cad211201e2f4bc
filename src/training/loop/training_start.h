// The starting point of a run: fresh, one of its own checkpoints, or the weights of another run.
#pragma once

#include <cstdint>
#include <optional>

#include "config/args.h"
#include "distributed/process_group.h"
#include "models/hstu/task_model.h"
#include "training/checkpoint/checkpoint.h"
#include "training/loop/batch_stream.h"
#include "training/loop/run_schedule.h"
#include "training/loop/step_update.h"
#include "training/loop/training_state.h"

namespace seqfuse::training {

// With several processes, only the first calls resume() or load_weights_of(); then all call
// share().
class TrainingStart {
 public:
  // All references must outlive it.
  TrainingStart(models::hstu::TaskModel& model, const config::TrainerArgs& args, StepUpdate& update,
                BatchStream& stream, RunSchedule& schedule, TrainingState& state,
                distributed::ProcessGroup& group);

  // Throws DataError if the checkpoint is of another model. grown: its vocabulary was moved to a
  // larger one (checkpoint/grown_vocabulary.h), and rows that it lacks keep their initial values.
  void resume(Checkpoint checkpoint, bool grown);

  // Throws DataError if a weight has another shape or the vocabulary is another one; what else
  // differs is logged.
  void load_weights_of(Checkpoint checkpoint, bool grown);

  // Sends the first process's weights, optimiser and state to the others.
  void share();

  // Step of the checkpoint that the run is at; -1: not saved yet.
  int64_t saved_step() const { return saved_step_; }

 private:
  void load(Checkpoint& checkpoint, const embeddings::LoadOptions& options);
  void set_state(const nlohmann::json& state, const TensorMap& optimizer);

  models::hstu::TaskModel& model_;
  const config::TrainerArgs& args_;
  StepUpdate& update_;
  BatchStream& stream_;
  RunSchedule& schedule_;
  TrainingState& state_;
  distributed::ProcessGroup& group_;
  // Tables read by the first of several processes, until share().
  struct LoadedTables {
    TableMap contents;
    embeddings::LoadOptions options;
  };
  std::optional<LoadedTables> loaded_tables_;
  int64_t saved_step_ = -1;
};

}  // namespace seqfuse::training
