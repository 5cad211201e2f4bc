// The lines of metrics.jsonl, the log and the progress line of a run.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "base/progress.h"
#include "config/roots.h"
#include "report/metrics.h"
#include "training/checkpoint/run_writer.h"
#include "training/evaluation/target_counts.h"
#include "training/loop/run_schedule.h"
#include "training/loop/step_update.h"
#include "training/loop/training_state.h"

namespace seqfuse::training {

class RunRecorder {
 public:
  // Lines of steps after state.step are cut off. All references must outlive it.
  RunRecorder(RunDirectory& run, RunWriter& writer, const config::Config& config,
              const RunSchedule& schedule, const TrainingState& state, bool show_progress);

  // A step that took so many seconds, after which state stands; first_batch: its first one.
  void add_step(const TrainingState& state, const Step& step, double seconds, int64_t first_batch);

  // Writes the line of the steps since the last one, and starts anew.
  void write_step(TrainingState& state, const Step& step);

  // Whether metrics.jsonl had the evaluation at state.step when the run was resumed.
  bool has_evaluation(const TrainingState& state) const { return logged_evaluation_ == state.step; }
  void write_evaluation(const TrainingState& state, const report::Metrics& metrics,
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
  int64_t tokens_ = 0;  // of this process's steps, and how long they took
  double seconds_ = 0;
  double loss_ = std::numeric_limits<double>::quiet_NaN();  // the last that was read
};

}  // namespace seqfuse::training
