// Runs training steps: next batches, forward, backward, exchange between processes, update.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "config/roots.h"
#include "data/batch/batch.h"
#include "distributed/process_group.h"
#include "models/hstu/task_model.h"
#include "training/device/step_graphs.h"
#include "training/loop/batch_stream.h"
#include "training/loop/step_exchange.h"
#include "training/loop/step_update.h"

namespace seqfuse::training {

class StepRunner {
 public:
  // All references must outlive it.
  StepRunner(models::hstu::TaskModel& model, const config::Config& config, BatchStream& stream,
             StepUpdate& update, distributed::ProcessGroup& group);

  // With TrainerArgs.cuda_graph, if the model supports it: runs steps as CUDA graphs until
  // stop_graphs(), which frees their memory.
  void start_graphs();
  void stop_graphs() { graphs_.reset(); }
  int64_t replayed_steps() const { return graphs_ ? graphs_->replayed() : 0; }

  // Runs the step after `done` of `total` steps. signal: returns the one received by this process,
  // or 0. Calls on_batch with each batch first. Throws NotFinite and leaves the weights unchanged.
  Step run(int64_t done, int64_t total, const std::function<int()>& signal,
           const std::function<void(const data::Batch&)>& on_batch);

  // " (batch of 8 users, 160 tokens)" for the current batch; empty if it has no users.
  std::string batch_text() const;

 private:
  models::StepSeed seed_of_next_batch() const;
  data::Batch next_batch(const std::function<void(const data::Batch&)>& on_batch);
  // Windows of the current batch, sent ahead or now.
  models::hstu::Windows upload(const data::Batch& batch, int64_t position);
  // With TrainerArgs.pipeline_type = 'prefetch'.
  void send_next_batch();
  const models::hstu::Windows* next_windows() const { return next_ ? &next_->windows : nullptr; }
  void run_graph(int64_t number, const std::function<void(const data::Batch&)>& on_batch,
                 Step& step);

  models::hstu::TaskModel& model_;
  const config::Config& config_;
  BatchStream& stream_;
  StepUpdate& update_;
  distributed::ProcessGroup& group_;
  StepExchange exchange_;
  std::optional<StepGraphs> graphs_;
  int64_t batch_users_ = 0, batch_tokens_ = 0;  // of the current batch
  const bool sends_ahead_;
  struct Sent {
    int64_t position = -1;  // of the batch, in the stream
    models::hstu::Windows windows;
  };
  std::optional<Sent> next_;  // none if this process has no part of the next batch
};

}  // namespace seqfuse::training
