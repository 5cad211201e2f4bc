// The training loop: steps, evaluations, checkpoints, early stopping, resuming.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/args.h"
#include "data/dataset.h"
#include "data/split.h"
#include "training/batch_stream.h"
#include "training/checkpoint.h"
#include "training/optimizer.h"
#include "training/run_directory.h"
#include "training/task_model.h"
#include "training/training_state.h"

namespace seqfuse::training {

struct TrainResult {
  int64_t step = 0;
  Metrics metrics;         // of the last evaluation; empty if there was none
  int64_t best_step = -1;  // the best evaluation by the watched metric
  Metrics best_metrics;
  bool stopped_early = false;
  int signal = 0;  // SIGINT or SIGTERM stopped it, after a checkpoint
};

// Random numbers, the order of users and the state are functions of (seed, step): a run that stops
// at a checkpoint and resumes has the same losses, bit for bit, as one that never stopped (with the
// same number of threads).
class Trainer {
 public:
  // All references must outlive the trainer. Throws UsageError or DataError on settings that cannot
  // train.
  Trainer(TaskModel& model, const data::Dataset& dataset, const data::Split& split,
          const config::Config& config);

  // Continues from a checkpoint. Throws DataError if it is of another model.
  void resume(const Checkpoint& checkpoint);

  int64_t total_steps() const { return total_steps_; }

  // Until the last step, early stopping or a signal. A loss or gradient that is not finite is an
  // Error that names the step; the weights of that step are not saved. Out of memory: saves, then
  // throws.
  TrainResult run(RunDirectory& run, bool show_progress);

 private:
  struct Step {
    double loss_sum = 0, gradient_norm = 0, learning_rate = 0;
    int64_t positions = 0, tokens = 0;
  };
  Step train_step();
  Step train_step_or_save();
  [[noreturn]] void fail_not_finite(const char* what, double value);
  void log_step(const Step& step, double tokens_per_second);
  void evaluate(bool show_progress);
  bool evaluation_due(int64_t batches_before) const;
  bool early_stop_due() const;
  void save();
  int64_t epoch_of(int64_t batch) const { return batch / stream_.batches_per_epoch(); }

  TaskModel& model_;
  const data::Dataset& dataset_;
  const config::Config& config_;
  const std::vector<data::Sample>& evaluation_samples_;
  BatchStream stream_;
  Optimizer optimizer_;
  int64_t total_steps_ = 0;
  TrainingState state_;
  RunDirectory* run_ = nullptr;  // while run() is at work
  Metrics metrics_;              // of the last evaluation
  int64_t evaluated_step_ = -1, saved_step_ = -1;
};

}  // namespace seqfuse::training
