// CUDA graphs of training steps: records a step's GPU work once per batch size and then launches it
// as a whole, which takes the host microseconds instead of milliseconds.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "models/hstu/windows.h"

namespace seqfuse::training {

class StepGraphs {
 public:
  // While it exists, the calling thread's GPU work goes to a separate stream on which graphs can be
  // recorded. device: a GPU.
  explicit StepGraphs(at::Device device);
  ~StepGraphs();
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  // Runs a step. The first batch of a size calls work, which warms up caches and workspaces; the
  // second records it; later ones launch the recording. Keeps the 64 most recently used sizes.
  // Without memory to record, it calls work from then on; other errors of work are passed on.
  // work must neither read device values on the host nor use host values that differ between
  // batches of a size: these must be in the windows' tensors, or in others at fixed addresses.
  // recording: what work enqueues does not run now.
  void run(const models::hstu::Windows& windows,
           const std::function<void(const models::hstu::Windows&, bool recording)>& work);

  // Steps so far that launched a graph.
  int64_t replayed() const { return replayed_; }

 private:
  struct State;
  std::unique_ptr<State> state_;
  int64_t replayed_ = 0;
};

}  // namespace seqfuse::training
