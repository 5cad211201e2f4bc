// Sums gradients over the processes while the backward pass still runs.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>
#include <vector>

#include "distributed/process_group.h"

namespace seqfuse::distributed {

// Parameters are grouped into buckets in reverse order, the order in which the backward pass
// finishes them. A bucket is sent when its gradients are complete and all earlier buckets are sent,
// so every process sends in the same order. On the CPU the sums are the same bits in every process
// and in every run.
class GradientBuckets {
 public:
  static constexpr int64_t kBucketBytes = 25 << 20;

  // Hooks into the parameters' gradients during its lifetime; does nothing with one process. All
  // gradients must be dense. group must outlive it.
  GradientBuckets(ProcessGroup& group, std::vector<at::Tensor> parameters,
                  int64_t bucket_bytes = kBucketBytes);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  // Call before the backward pass that completes the gradients, the last one of a step.
  void start();
  // Call after it: every gradient becomes the sum over the processes. A missing gradient counts as
  // 0; a parameter without a gradient in every process still has none. Also sums numbers, in the
  // same exchange as the counts of gradients.
  void finish(std::span<double> numbers = {});

  int64_t buckets() const { return static_cast<int64_t>(buckets_.size()); }
  // Number of buckets of the last step that were sent before finish().
  int64_t sent_early() const { return sent_early_; }

 private:
  struct Bucket {
    std::vector<size_t> members;  // indices of parameters_
    at::Tensor flat;              // their gradients, concatenated
    size_t missing = 0;           // gradients that are not complete yet
    ProcessGroup::Finish finish;  // set when the bucket is sent
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

// Sums the sparse gradient of a large table over the processes: gathers and coalesces its rows. A
// missing gradient counts as 0. If one process has a dense gradient, all have a dense one
// afterwards.
void sum_table_gradient(ProcessGroup& group, at::Tensor table);

}  // namespace seqfuse::distributed
