#include "training/step_graphs.h"

#include "base/error.h"

#ifdef SEQFUSE_HAS_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "base/log.h"

namespace seqfuse::training {

namespace {

constexpr size_t kMaxGraphs = 64;

}  // namespace

struct StepGraphs::State {
  struct Graph {
    models::Windows windows;  // where the recorded kernels read a batch
    std::optional<at::cuda::CUDAGraph> graph;
    int64_t last_run = 0;
  };

  explicit State(at::Device device)
      : stream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())) {
    c10::cuda::device_synchronize();  // what other streams have enqueued comes first
    guard.emplace(stream);
  }

  void record(Graph& to, const models::Windows& windows,
              const std::function<void(const models::Windows&, bool)>& work) {
    // Memory is gone with the last of its graphs.
    if (std::none_of(graphs.begin(), graphs.end(),
                     [](auto& g) { return g.second.graph.has_value(); })) {
      pool = at::cuda::graph_pool_handle();
    }
    to.graph.emplace();
    // Other threads may do meanwhile what cannot be recorded.
    to.graph->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    try {
      work(windows, /*recording=*/true);
    } catch (...) {
      try {
        to.graph->capture_end();
      } catch (const std::exception& error) {
        log::warning("train", "a CUDA graph was not recorded to its end: {}", error.what());
      }
      to.graph.reset();
      throw;
    }
    to.graph->capture_end();
    to.windows = windows;
  }

  void forget_oldest() {
    const auto oldest = std::min_element(graphs.begin(), graphs.end(), [](auto& a, auto& b) {
      return a.second.last_run < b.second.last_run;
    });
    c10::cuda::stream_synchronize(stream);
    graphs.erase(oldest);
  }

  c10::cuda::CUDAStream stream;
  at::cuda::MempoolId_t pool{};                  // of all graphs: they never run at the same time
  std::map<std::vector<int64_t>, Graph> graphs;  // by Windows::sizes()
  int64_t runs = 0;
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

void StepGraphs::run(const models::Windows& windows,
                     const std::function<void(const models::Windows&, bool)>& work) {
  State& state = *state_;
  const std::vector<int64_t> sizes = windows.sizes();
  auto found = state.graphs.find(sizes);
  if (found == state.graphs.end()) {
    if (state.graphs.size() == kMaxGraphs) state.forget_oldest();
    state.graphs[sizes].last_run = ++state.runs;
    work(windows, /*recording=*/false);
    return;
  }
  State::Graph& graph = found->second;
  graph.last_run = ++state.runs;
  if (!graph.graph) {
    state.record(graph, windows, work);
  } else {
    const torch::NoGradGuard no_grad;
    graph.windows.sent.copy_(windows.sent, /*non_blocking=*/true);
  }
  graph.graph->replay();
}

}  // namespace seqfuse::training
#else
namespace seqfuse::training {

struct StepGraphs::State {};

StepGraphs::StepGraphs(at::Device device) {
  throw_error<UsageError>("CUDA graphs on {}: this build has no CUDA", device.str());
}

StepGraphs::~StepGraphs() = default;

void StepGraphs::run(const models::Windows&,
                     const std::function<void(const models::Windows&, bool)>&) {}

}  // namespace seqfuse::training
#endif
