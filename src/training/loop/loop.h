// The training loop: steps, evaluations, checkpoints, early stopping, resuming.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/args.h"
#include "data/batch/split.h"
#include "data/dataset/dataset.h"
#include "distributed/process_group.h"
#include "models/hstu/task_model.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/run_directory.h"
#include "training/checkpoint/run_writer.h"
#include "training/checkpoint/table_tensors.h"
#include "training/device/device_step.h"
#include "training/device/step_graphs.h"
#include "training/evaluation/evaluation.h"
#include "training/evaluation/target_counts.h"
#include "training/loop/batch_stream.h"
#include "training/loop/interrupt.h"
#include "training/loop/step_exchange.h"
#include "training/loop/training_state.h"
#include "training/optimizer/optimizer.h"
#include "training/profile/step_profiler.h"

namespace seqfuse::training {

struct TrainResult {
  int64_t step = 0;
  Metrics metrics;         // of the last evaluation; empty if there was none
  int64_t best_step = -1;  // the best evaluation by the watched metric
  Metrics best_metrics;
  bool stopped_early = false;
  int signal = 0;              // SIGINT or SIGTERM stopped it, after a checkpoint
  int64_t replayed_steps = 0;  // steps that were launches of CUDA graphs
};

using Evaluate = std::function<Metrics(models::hstu::TaskModel&, const data::Dataset&,
                                       const std::vector<data::Sample>&, const EvaluationOptions&)>;

// Random numbers, the order of users and the state are functions of (seed, step): a run that stops
// at a checkpoint and resumes has the same losses, bit for bit, as one that never stopped (with the
// same number of threads).
class Trainer {
 public:
  // All references must outlive the trainer. Throws UsageError or DataError on settings that cannot
  // train.
  // Of several processes, each makes the same trainer and the same calls; resume() and start_from()
  // are called in the first alone, followed by share_start() in all.
  Trainer(models::hstu::TaskModel& model, const data::Dataset& dataset, const data::Split& split,
          const config::Config& config,
          distributed::ProcessGroup& group = distributed::ProcessGroup::single(),
          Evaluate evaluate = training::evaluate);

  // Continues from a checkpoint. Throws DataError if it is of another model.
  void resume(Checkpoint checkpoint);

  // Begins with the weights of a checkpoint. Throws DataError if a weight has another shape or the
  // vocabulary is another one; what else differs is logged.
  void start_from(Checkpoint checkpoint);

  // Weights, optimiser and state of the first process go to the others.
  void share_start();

  int64_t total_steps() const { return total_steps_; }
  int64_t step() const { return state_.step; }  // steps done
  int64_t epoch() const;                        // of the last batch, from 1; 0 before the first

  // Until the last step, early stopping or a signal. A loss or gradient that is not finite is an
  // Error that names the step; the weights of that step are not saved. Out of memory, and data that
  // turn out to be damaged: saves, then throws. docs/faults.md has them all. On a GPU losses are
  // read when they are logged, and before evaluations and checkpoints.
  TrainResult run(RunDirectory& run, bool show_progress);

 private:
  static constexpr double kLongSeconds = 600;  // evaluations, checkpoints, the first step

  struct Step {
    double loss_sum = 0, gradient_norm = 0, learning_rate = 0;
    int64_t positions = 0, tokens = 0;
    int64_t losses_read =
        0;  // positions in loss_sum, which on a GPU are those of several steps or none
  };
  Step train_step();
  data::Batch next_batch();
  models::StepSeed seed_of_next_batch() const;
  // With TrainerArgs.cuda_graph, where a step can be one.
  void start_graphs();
  Step graph_step();
  void update(Step& step);
  // recording: what is enqueued happens later.
  void update_on_device(bool recording = false);
  // Of a GPU: takes over what it has done since the last time. Fails if a loss or gradient was not
  // finite.
  void read_device(Step& step);
  [[noreturn]] void fail_not_finite(const char* what, double value, int64_t step);
  void log_step(const Step& step, double tokens_per_second);
  void evaluate(bool show_progress);
  void evaluate_missed(bool show_progress);
  bool evaluation_due(int64_t batches_before) const;
  bool early_stop_due() const;
  // last: training ends with it.
  void save(bool last = false);
  // For a handler of the error: saves what is still whole, and says so with what happened in what.
  [[noreturn]] void stop_saved(const std::exception& error, const std::string& what,
                               const std::string& advice);
  std::string save_after_fault();
  // Weights and the optimiser's state by name: of sharded tables, the rows of this process.
  TensorMap tensors_here() const;
  void load(Checkpoint& checkpoint);
  void set_state(const nlohmann::json& state, const TensorMap& optimizer);
  void count_steps();
  int stop_signal() const;
  // What this process does now, and for how many seconds the others may wait for it.
  void allow(const std::string& what, double seconds);
  void check_weights();
  int64_t epoch_of(int64_t batch) const { return batch / stream_.batches_per_epoch(); }

  models::hstu::TaskModel& model_;
  const data::Dataset& dataset_;
  const config::Config& config_;
  distributed::ProcessGroup& group_;
  const Evaluate evaluate_;
  const std::vector<data::Sample>& evaluation_samples_;
  BatchStream stream_;
  Optimizer optimizer_;
  StepExchange exchange_;
  TableTensors table_tensors_;
  TensorMap whole_rows_;              // between resume() or start_from() and share_start()
  std::optional<DeviceStep> device_;  // where the model is on a GPU
  int64_t total_steps_ = 0;
  TrainingState state_;
  int64_t loss_positions_read_ = 0;            // of a GPU: positions in state_.loss_sum
  std::optional<RunWriter> writer_;            // while run() is at work
  std::optional<StepProfiler> profiler_;       // likewise, with TrainerArgs.profile
  std::optional<StepGraphs> graphs_;           // likewise, with TrainerArgs.cuda_graph
  const InterruptGuard* interrupt_ = nullptr;  // likewise
  int signal_ = 0;                             // of several processes: that all know of
  double longest_step_ = 0;                    // seconds
  Metrics metrics_;                            // of the last evaluation
  std::optional<TargetCounts> target_counts_;  // retrieval: of each evaluation
  int64_t evaluated_step_ = -1, saved_step_ = -1;
  int64_t logged_evaluation_ = -1;              // step of the last one in metrics.jsonl
  int64_t batch_users_ = 0, batch_tokens_ = 0;  // of the batch that is computed
  bool updating_ = false;                       // weights may be half changed
};

}  // namespace seqfuse::training
