// What the processes of a job exchange in a training step: gradients, losses, counts, signals.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>

#include "distributed/gradient_buckets.h"
#include "distributed/process_group.h"
#include "models/common/model.h"

namespace seqfuse::training {

// Of one process it does nothing.
class StepExchange {
 public:
  // model and group must outlive it.
  StepExchange(distributed::ProcessGroup& group, const models::Model& model);

  // Before the last backward pass of a step.
  void start();

  struct Totals {
    double loss_sum = 0;
    int64_t positions = 0, tokens = 0;
    int signal = 0;  // SIGINT or SIGTERM has come
  };
  // After it: gradients (of a sharded table: of the rows here) and numbers are the sums over the
  // processes, and a signal to one of them is one to all, so that all stop after the same step.
  Totals finish(const Totals& mine);

 private:
  distributed::ProcessGroup& group_;
  const embeddings::Tables tables_;
  std::optional<distributed::GradientBuckets> buckets_;
};

}  // namespace seqfuse::training
