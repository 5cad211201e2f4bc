// Writes a run's metrics.jsonl, log and progress line.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "base/progress.h"
#include "config/roots.h"
#include "metrics/metrics.h"
#include "training/checkpoint/run_writer.h"
#include "training/evaluation/target_counts.h"
#include "training/loop/run_schedule.h"
#include "training/loop/step_update.h"
#include "training/loop/training_state.h"

namespace seqfuse::training {

class RunRecorder {
 public:
  // Drops lines of steps after state.step. All references must outlive this.
  RunRecorder(RunDirectory& run, RunWriter& writer, const config::Config& config,
              const RunSchedule& schedule, const TrainingState& state, bool show_progress);

  // Adds a step and its duration; state is that after the step; first_batch: the step's first
  // batch.
  void add_step(const TrainingState& state, const Step& step, double seconds, int64_t first_batch);

  // Writes the line for the steps since the last one, and starts over.
  void write_step(TrainingState& state, const Step& step);

  // Whether metrics.jsonl already had the evaluation at state.step when the run was resumed.
  bool has_evaluation(const TrainingState& state) const { return logged_evaluation_ == state.step; }
  void write_evaluation(const TrainingState& state, const metrics::Metrics& metrics,
                        const std::optional<TargetCounts>& targets);

  void end_progress() { progress_.reset(); }

 private:
  double tokens_per_second() const { return static_cast<double>(tokens_) / seconds_; }

  RunWriter& writer_;
  const config::Config& config_;
  const RunSchedule& schedule_;
  const int64_t first_step_, epochs_;
  const int64_t logged_evaluation_;  // step of the last one in metrics.jsonl
  std::optional<Progress> progress_;
  int64_t tokens_ = 0;  // of this process's steps, and their duration
  double seconds_ = 0;
  double loss_ = std::numeric_limits<double>::quiet_NaN();  // last one read
};

}  // namespace seqfuse::training
