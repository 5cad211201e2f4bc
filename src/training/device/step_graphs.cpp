#include "training/device/step_graphs.h"

#include "base/error.h"

#ifdef SEQFUSE_HAS_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"

namespace seqfuse::training {
namespace {

constexpr size_t kMaxGraphs = 64;

}  // namespace

struct StepGraphs::State {
  struct Graph {
    models::hstu::Windows windows;  // where the recorded kernels read a batch
    std::optional<at::cuda::CUDAGraph> graph;
    int64_t last_run = 0;
  };

  explicit State(at::Device device)
      : stream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())) {
    c10::cuda::device_synchronize();  // finish what other streams have enqueued
    guard.emplace(stream);
  }

  void record(Graph& to, const models::hstu::Windows& windows,
              const std::function<void(const models::hstu::Windows&, bool)>& work) {
    if (recorded() == 0) {
      // A pool is freed with its last graph, and PyTorch does not accept its handle again.
      pool = at::cuda::graph_pool_handle();
      c10::cuda::stream_synchronize(stream);
      c10::cuda::CUDACachingAllocator::emptyCache();  // graphs need memory outside the cache
    }
    to.graph.emplace();
    try {
      // Thread-local: other threads may do things that cannot be recorded.
      to.graph->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
      work(windows, /*recording=*/true);
      to.graph->capture_end();
    } catch (...) {
      end_recording(*to.graph);
      to.graph.reset();
      throw;
    }
    to.windows = windows;
  }

  // After an error: restores the stream and the allocator.
  void end_recording(at::cuda::CUDAGraph& graph) const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    C10_CUDA_CHECK_WARN(cudaStreamIsCapturing(stream, &status));
    if (status == cudaStreamCaptureStatusNone) return;
    try {
      graph.capture_end();
    } catch (const std::exception&) {  // the error being thrown says more
      c10::cuda::CUDACachingAllocator::endAllocateToPool(stream.device_index(), pool);
    }
  }

  void give_up(const c10::OutOfMemoryError& error) {
    const std::string message = error.what_without_backtrace();
    log::info("train", "steps are no longer CUDA graphs: not enough memory for them: {}",
              message.substr(0, message.find(". GPU")));
    c10::cuda::stream_synchronize(stream);
    graphs.clear();
    c10::cuda::CUDACachingAllocator::emptyCache();
    given_up = true;
  }

  size_t recorded() const {
    return std::count_if(graphs.begin(), graphs.end(),
                         [](const auto& g) { return g.second.graph.has_value(); });
  }

  void forget_oldest() {
    if (!std::exchange(has_forgotten, true)) {
      log::warning("train",
                   "batches have more than {} sizes, so that CUDA graphs are recorded again and "
                   "again: TrainerArgs.cuda_graph = False may be faster",
                   kMaxGraphs);
    }
    const auto oldest = std::min_element(graphs.begin(), graphs.end(), [](auto& a, auto& b) {
      return a.second.last_run < b.second.last_run;
    });
    c10::cuda::stream_synchronize(stream);
    graphs.erase(oldest);
  }

  c10::cuda::CUDAStream stream;
  at::cuda::MempoolId_t pool;                    // shared, since graphs never run concurrently
  std::map<std::vector<int64_t>, Graph> graphs;  // by Windows::sizes()
  int64_t runs = 0;
  bool given_up = false, has_forgotten = false;
  std::optional<c10::cuda::CUDAStreamGuard> guard;
};

StepGraphs::StepGraphs(at::Device device) : state_(std::make_unique<State>(device)) {}

StepGraphs::~StepGraphs() {
  try {
    c10::cuda::stream_synchronize(state_->stream);
  } catch (const std::exception& error) {
    log::warning("train", "could not wait for the GPU: {}", error.what());
  }
}

void StepGraphs::run(const models::hstu::Windows& windows,
                     const std::function<void(const models::hstu::Windows&, bool)>& work) {
  State& state = *state_;
  if (state.given_up) return work(windows, /*recording=*/false);
  const std::vector<int64_t> sizes = windows.sizes();
  const auto found = state.graphs.find(sizes);
  if (found == state.graphs.end()) {
    work(windows, /*recording=*/false);
    if (state.graphs.size() == kMaxGraphs) state.forget_oldest();
    state.graphs[sizes].last_run = ++state.runs;
    return;
  }
  State::Graph& graph = found->second;
  graph.last_run = ++state.runs;
  if (!graph.graph) {
    try {
      state.record(graph, windows, work);
    } catch (const c10::OutOfMemoryError& error) {
      state.give_up(error);
      return work(windows, /*recording=*/false);
    }
  } else {
    const torch::NoGradGuard no_grad;
    graph.windows.sent.copy_(windows.sent, /*non_blocking=*/true);
  }
  graph.graph->replay();
  ++replayed_;
}

}  // namespace seqfuse::training
#else
namespace seqfuse::training {

struct StepGraphs::State {};

StepGraphs::StepGraphs(at::Device device) {
  throw_error<UsageError>("CUDA graphs on {}: this build has no CUDA", device.str());
}

StepGraphs::~StepGraphs() = default;

void StepGraphs::run(const models::hstu::Windows&,
                     const std::function<void(const models::hstu::Windows&, bool)>&) {}

}  // namespace seqfuse::training
#endif
