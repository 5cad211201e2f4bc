// Exchanges a training step's gradients, losses, counts and signals between processes.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>

#include "distributed/gradient_buckets.h"
#include "distributed/process_group.h"
#include "models/common/model.h"

namespace seqfuse::training {

// Does nothing with one process.
class StepExchange {
 public:
  // model and group must outlive it.
  StepExchange(distributed::ProcessGroup& group, const models::Model& model);

  // Call before the last backward pass of a step.
  void start();

  struct Totals {
    double loss_sum = 0;
    int64_t positions = 0, tokens = 0;
    int signal = 0;  // SIGINT or SIGTERM was received
  };
  // Call after it: sums gradients (for a sharded table, those of the rows here) and numbers over
  // the processes. A signal to one process becomes one to all, so that all stop after the same
  // step.
  Totals finish(const Totals& mine);

 private:
  distributed::ProcessGroup& group_;
  const embeddings::Tables tables_;
  std::optional<distributed::GradientBuckets> buckets_;
};

}  // namespace seqfuse::training
