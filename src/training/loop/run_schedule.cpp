#include "training/loop/run_schedule.h"

#include <algorithm>
#include <limits>

namespace seqfuse::training {

void RunSchedule::count_steps(const TrainingState& state) {
  total_steps_ = std::numeric_limits<int64_t>::max();
  if (args_.num_epochs || !args_.max_train_iters) {
    const int64_t batches = args_.num_epochs.value_or(1) * batches_per_epoch_;
    // The last step may have fewer batches than the others.
    const int64_t per_step = args_.gradient_accumulation_steps;
    total_steps_ =
        state.step + (std::max<int64_t>(batches - state.batch, 0) + per_step - 1) / per_step;
  }
  total_steps_ = std::min(total_steps_, args_.max_train_iters.value_or(total_steps_));
}

RunSchedule::Due RunSchedule::due(const TrainingState& state, int64_t first_batch) const {
  const auto every = [&](int64_t interval) { return interval > 0 && state.step % interval == 0; };
  Due due;
  due.last = state.step == total_steps_;
  due.log = due.last || every(args_.log_interval);
  due.evaluate = due.last || evaluation_due(state, first_batch);
  const int64_t interval = args_.ckpt_save_interval;  // negative: after evaluations
  due.save = due.last || every(interval) || (interval < 0 && due.evaluate);
  return due;
}

bool RunSchedule::evaluation_was_due(const TrainingState& state) const {
  return state.step > 0 && state.step != total_steps_ &&
         evaluation_due(state, state.batch - args_.gradient_accumulation_steps);
}

bool RunSchedule::evaluation_due(const TrainingState& state, int64_t first_batch) const {
  if (args_.eval_interval_epochs) {
    const int64_t interval = *args_.eval_interval_epochs;
    return interval > 0 && state.batch / batches_per_epoch_ / interval >
                               first_batch / batches_per_epoch_ / interval;
  }
  return args_.eval_interval > 0 && state.step % args_.eval_interval == 0;
}

int64_t RunSchedule::epoch(const TrainingState& state) const {
  return state.batch > 0 ? epoch_of_batch(state.batch - 1) : 0;
}

int64_t RunSchedule::last_epoch(const TrainingState& state) const {
  const int64_t batches =
      state.batch + (total_steps_ - state.step) * args_.gradient_accumulation_steps;
  return epoch_of_batch(std::max<int64_t>(batches - 1, 0));
}

}  // namespace seqfuse::training
