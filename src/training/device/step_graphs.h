// CUDA graphs of training steps: what a step enqueues is recorded once for each size of batch, and
// then launched as a whole, which takes the host microseconds instead of milliseconds.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "models/hstu/windows.h"

namespace seqfuse::training {

class StepGraphs {
 public:
  // While it lives, the calling thread's work on the GPU goes to a stream of its own, on which
  // graphs can be recorded. device: a GPU.
  explicit StepGraphs(at::Device device);
  ~StepGraphs();
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  // Enqueues a step. The first batch of each size runs work itself, which warms up caches and
  // workspaces; at the second, what work enqueues is recorded; all later ones launch the record.
  // The 64 sizes that were used last are kept. Where there is no memory to record, work is run from
  // then on; other errors of work are passed on.
  // work reads no values on the host, and nothing from it that differs between batches of a size:
  // what differs is in the windows' tensors, or in others that stay where they are. recording:
  // nothing happens now of what work enqueues.
  void run(const models::hstu::Windows& windows,
           const std::function<void(const models::hstu::Windows&, bool recording)>& work);

  // Steps so far that were launches of a graph.
  int64_t replayed() const { return replayed_; }

 private:
  struct State;
  std::unique_ptr<State> state_;
  int64_t replayed_ = 0;
};

}  // namespace seqfuse::training
