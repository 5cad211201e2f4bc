// Decides when a run logs, evaluates, saves and ends.
#pragma once

#include <cstdint>

#include "config/args.h"
#include "training/loop/training_state.h"

namespace seqfuse::training {

class RunSchedule {
 public:
  // args must outlive it.
  RunSchedule(const config::TrainerArgs& args, int64_t batches_per_epoch)
      : args_(args), batches_per_epoch_(batches_per_epoch) {}

  // Counts the steps of the whole run from the current position, since a resumed run may have
  // another batch or step size.
  void count_steps(const TrainingState& state);
  int64_t total_steps() const { return total_steps_; }

  struct Due {
    bool last = false;  // the step was the run's last
    bool log = false, evaluate = false, save = false;
    bool any() const { return log || evaluate || save; }
  };
  // The work that is due after the step that led to state; first_batch: the step's first batch.
  Due due(const TrainingState& state, int64_t first_batch) const;

  // Whether an evaluation was due after the step from which a run is resumed.
  bool evaluation_was_due(const TrainingState& state) const;

  // Epoch, from 1, of the last batch consumed; 0 before the first.
  int64_t epoch(const TrainingState& state) const;
  int64_t epoch_of_batch(int64_t batch) const { return batch / batches_per_epoch_ + 1; }
  // Epoch of the run's last batch.
  int64_t last_epoch(const TrainingState& state) const;

 private:
  bool evaluation_due(const TrainingState& state, int64_t first_batch) const;

  const config::TrainerArgs& args_;
  const int64_t batches_per_epoch_;
  int64_t total_steps_ = 0;
};

}  // namespace seqfuse::training
