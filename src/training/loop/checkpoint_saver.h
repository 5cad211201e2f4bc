// Saves the checkpoints of a run.
#pragma once

#include <cstdint>

#include "distributed/process_group.h"
#include "models/hstu/task_model.h"
#include "training/checkpoint/run_writer.h"
#include "training/loop/step_update.h"
#include "training/loop/training_state.h"

namespace seqfuse::training {

class CheckpointSaver {
 public:
  // saved_step: the step of the checkpoint that a resumed run starts from, or -1. All references
  // must outlive it.
  CheckpointSaver(models::hstu::TaskModel& model, StepUpdate& update,
                  const config::TrainerArgs& args, distributed::ProcessGroup& group,
                  RunWriter& writer, int64_t saved_step);

  // Synchronises the GPU. last: training ends with it. Call from every process; the first one
  // writes. Throws NotFinite if a loss, a gradient or a weight is not finite.
  void save(TrainingState& state, bool last);

  // Step of the newest checkpoint; -1: none.
  int64_t saved_step() const { return saved_step_; }

 private:
  void check_tables(const Checkpoint& checkpoint) const;

  models::hstu::TaskModel& model_;
  StepUpdate& update_;
  const config::TrainerArgs& args_;
  distributed::ProcessGroup& group_;
  RunWriter& writer_;
  int64_t saved_step_;
};

}  // namespace seqfuse::training
