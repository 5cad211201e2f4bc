// The processes of one training job, which exchange tensors through c10d, with NCCL for GPU tensors
// and Gloo for CPU tensors.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "distributed/launch.h"

namespace seqfuse::distributed {

// Every process must make the same calls in the same order. `what` names the exchange in messages
// ("all-reduce of gradients"). A process that dies or hangs ends all others (watchdog.h); an
// exchange that fails otherwise throws Error.
class ProcessGroup {
 public:
  // A group of one process: exchanges and starts nothing.
  ProcessGroup();
  static ProcessGroup& single();  // a shared group of one process

  // Connects to the others through the launch's store. device: all_reduce, broadcast and all_to_all
  // take tensors on it and on the CPU. Throws UsageError if this build does not support several
  // processes, Error if the others do not appear.
  ProcessGroup(const Launch& launch, at::Device device, double rank_timeout_seconds);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool several() const { return size_ > 1; }
  bool is_first() const { return rank_ == 0; }  // it prints and writes files
  const char* backend() const;                  // "gloo", "nccl"

  // Announces what this process does next, for messages, and how long that may take.
  void begin(const std::string& what, double allowed_seconds);

  // Sums a contiguous tensor over the processes in place. Returns at once; call the result before
  // reading the tensor: it waits on the CPU; on a GPU it makes the current stream wait.
  using Finish = std::function<void()>;
  Finish all_reduce(const at::Tensor& tensor, const std::string& what);

  // Overwrites contiguous tensors with those of the first process.
  void broadcast(const std::vector<at::Tensor>& tensors, const std::string& what);
  std::string broadcast(const std::string& text, const std::string& what);

  // Sends send_counts[r] consecutive rows to process r and receives receive_counts[r] from it, in
  // the order of the processes.
  at::Tensor all_to_all(const at::Tensor& rows, const std::vector<int64_t>& send_counts,
                        const std::vector<int64_t>& receive_counts, const std::string& what);

  // Sums values in host memory in place.
  void sum(std::span<double> values, const std::string& what);
  // Concatenates CPU tensors, which may differ in their first dimension only, in the order of the
  // processes.
  at::Tensor gather(const at::Tensor& rows, const std::string& what);
  void barrier(const std::string& what);

  // Call before this process ends, whether all succeeded or this one failed.
  void leave();
  void fail(const std::string& error);

 private:
  struct State;
  int rank_ = 0, size_ = 1;
  std::unique_ptr<State> state_;  // null for a single process
};

}  // namespace seqfuse::distributed
