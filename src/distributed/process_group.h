// The processes of one training job and how they exchange tensors: c10d, with NCCL for tensors on
// GPUs and Gloo for those on the CPU.
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

// Every process must make the same calls in the same order. `what` is what messages call the
// exchange ("all-reduce of gradients"). A process that dies or hangs ends all others (watchdog.h);
// an exchange that fails otherwise throws Error.
class ProcessGroup {
 public:
  // Of one process: nothing is exchanged, nothing is started.
  ProcessGroup();
  static ProcessGroup& single();  // one that everyone may use

  // Meets the others at the launch's store. device: where the tensors are that all_reduce,
  // broadcast and all_to_all take besides those on the CPU. Throws UsageError if this build has no
  // support for several processes, Error if the others do not come.
  ProcessGroup(const Launch& launch, at::Device device, double rank_timeout_seconds);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool several() const { return size_ > 1; }
  bool is_first() const { return rank_ == 0; }  // it prints and writes files
  const char* backend() const;                  // "gloo", "nccl"

  // What this process does from now on, for messages and for others to know how long it may take.
  void begin(const std::string& what, double allowed_seconds);

  // Sums over the processes in place. Returns at once; the result must be called before the tensor
  // is read: on the CPU it waits, on a GPU it makes the current stream wait. The tensor is
  // contiguous.
  using Finish = std::function<void()>;
  Finish all_reduce(const at::Tensor& tensor, const std::string& what);

  // Overwrites with those of the first process. Contiguous.
  void broadcast(const std::vector<at::Tensor>& tensors, const std::string& what);
  std::string broadcast(const std::string& text, const std::string& what);

  // send_counts[r] consecutive rows of rows go to process r; receive_counts[r] come from it, in the
  // order of the processes.
  at::Tensor all_to_all(const at::Tensor& rows, const std::vector<int64_t>& send_counts,
                        const std::vector<int64_t>& receive_counts, const std::string& what);

  // Of the host. Sums in place.
  void sum(std::span<double> values, const std::string& what);
  // Tensors on the CPU that differ in their first dimension alone, one after the other in the order
  // of the processes.
  at::Tensor gather(const at::Tensor& rows, const std::string& what);
  void barrier(const std::string& what);

  // Before this process ends: all are done, or this one has failed with an error.
  void leave();
  void fail(const std::string& error);

 private:
  struct State;
  int rank_ = 0, size_ = 1;
  std::unique_ptr<State> state_;  // null of one process
};

// Whether this build can start several processes; else why not and what to do.
std::string why_no_processes();

}  // namespace seqfuse::distributed
