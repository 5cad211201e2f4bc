// Gradients summed over the processes while backward still runs.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>
#include <vector>

#include "distributed/process_group.h"

namespace seqfuse::distributed {

// Parameters are cut into buckets in the reverse of their order, in which backward finishes them. A
// bucket is sent once all its gradients and all earlier buckets are there: the same order in every
// process, whatever the order of its gradients. On the CPU the sums are the same bits in every
// process and in every run.
class GradientBuckets {
 public:
  static constexpr int64_t kBucketBytes = 25 << 20;

  // Hooks into the parameters' gradients for as long as it lives; of one process it does nothing.
  // Only parameters with dense gradients. group must outlive it.
  GradientBuckets(ProcessGroup& group, std::vector<at::Tensor> parameters,
                  int64_t bucket_bytes = kBucketBytes);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  // Before the backward pass that completes the gradients: the last one of a step.
  void start();
  // After it: every gradient is the sum over the processes. A parameter that has none in this
  // process counts as 0; one that has none in any process still has none.
  // numbers are summed as well, in the same exchange as these facts.
  void finish(std::span<double> numbers = {});

  int64_t buckets() const { return static_cast<int64_t>(buckets_.size()); }
  // Of the last step: buckets that were sent before finish() was called.
  int64_t sent_early() const { return sent_early_; }

 private:
  struct Bucket {
    std::vector<size_t> members;  // of parameters_
    at::Tensor flat;              // their gradients, one after the other
    size_t missing = 0;           // gradients that are not there yet
    ProcessGroup::Finish finish;  // once it is sent
  };
  void gradient_is_there(size_t parameter);
  void send_full_buckets();
  void send(Bucket& bucket);

  ProcessGroup& group_;
  std::vector<at::Tensor> parameters_;
  std::vector<size_t> bucket_of_;
  std::vector<Bucket> buckets_;
  std::vector<char> there_;
  size_t next_ = 0;  // buckets before it are sent
  int64_t sent_early_ = 0;
  bool collecting_ = false;
};

// The sum over the processes of the gradient of a table of so many rows that it is sparse: its rows
// are gathered and coalesced. A process without a gradient counts as 0. If one process has a dense
// gradient, all have one after it.
void sum_table_gradient(ProcessGroup& group, at::Tensor table);

}  // namespace seqfuse::distributed
