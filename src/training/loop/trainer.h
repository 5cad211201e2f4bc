// Training: steps, evaluations, checkpoints, early stopping, resuming.
#pragma once

#include <cstdint>
#include <utility>

#include "config/roots.h"
#include "data/batch/split.h"
#include "data/dataset/dataset.h"
#include "distributed/process_group.h"
#include "models/hstu/task_model.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/run_directory.h"
#include "training/evaluation/evaluation.h"
#include "training/loop/batch_stream.h"
#include "training/loop/run_evaluator.h"
#include "training/loop/run_schedule.h"
#include "training/loop/step_runner.h"
#include "training/loop/step_update.h"
#include "training/loop/training_start.h"
#include "training/loop/training_state.h"

namespace seqfuse::training {

struct TrainResult {
  int64_t step = 0;
  Metrics metrics;         // of the last evaluation; empty if there was none
  int64_t best_step = -1;  // best evaluation by the watched metric
  Metrics best_metrics;
  bool stopped_early = false;
  int signal = 0;              // SIGINT or SIGTERM stopped training, after a checkpoint
  int64_t replayed_steps = 0;  // steps that launched a CUDA graph
};

// Random numbers, user order and state are functions of (seed, step): a run that stops at a
// checkpoint and resumes has bit-identical losses to an uninterrupted one (with the same number of
// threads).
class Trainer {
 public:
  // All references must outlive the trainer. Throws UsageError or DataError for settings that
  // cannot train. With several processes, all must construct the same trainer and make the same
  // calls, except that only the first calls resume() or start_from(); then all call share_start().
  Trainer(models::hstu::TaskModel& model, const data::Dataset& dataset, const data::Split& split,
          const config::Config& config,
          distributed::ProcessGroup& group = distributed::ProcessGroup::single(),
          Evaluate evaluate = training::evaluate);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Continues from a checkpoint. Throws DataError if it is of another model. grown: it was moved to
  // this larger vocabulary (checkpoint/grown_vocabulary.h).
  void resume(Checkpoint checkpoint, bool grown = false) {
    start_.resume(std::move(checkpoint), grown);
  }

  // Begins with the weights of a checkpoint. Throws DataError if a weight has another shape or the
  // vocabulary is another one; what else differs is logged.
  void start_from(Checkpoint checkpoint, bool grown = false) {
    start_.load_weights_of(std::move(checkpoint), grown);
  }

  // Sends the first process's weights, optimiser and state to the others.
  void share_start() { start_.share(); }

  // Saves a checkpoint before run(), of the step at which the run stands, in place of one that is
  // there. Every process calls it. Throws IoError.
  void save_start(RunDirectory& run);

  int64_t total_steps() const { return schedule_.total_steps(); }
  int64_t step() const { return state_.step; }               // steps done
  int64_t epoch() const { return schedule_.epoch(state_); }  // of the last batch, from 1; or 0

  // Trains until the last step, early stopping or a signal. A loss or gradient that is not finite
  // is an Error naming the step; that step's weights are not saved. Out of memory or damaged data:
  // saves, then throws (docs/faults.md lists all cases). On a GPU, losses are read when they are
  // logged, and before evaluations and checkpoints.
  TrainResult run(RunDirectory& run, bool show_progress);

 private:
  struct Running;  // state that exists only while run() runs

  void start_averages();
  void run_all(Running& run);
  void run_step(Running& run);
  Step train_step(Running& run);
  void evaluate(Running& run);
  void evaluate_missed(Running& run);

  models::hstu::TaskModel& model_;
  const config::Config& config_;
  distributed::ProcessGroup& group_;
  TrainingState state_;
  BatchStream stream_;
  RunSchedule schedule_;
  StepUpdate update_;
  StepRunner steps_;
  RunEvaluator evaluator_;
  TrainingStart start_;
  bool averages_started_ = false;
};

}  // namespace seqfuse::training
