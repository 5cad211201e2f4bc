#include "serving/decoding/step_graph.h"

#include "base/error.h"
#include "base/trace_range.h"

#ifdef SEQFUSE_HAS_CUDA
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "models/gpt_neox/gpu_step.h"
#include "ops/torch/decode/decode_step.h"

namespace seqfuse::serving {
using at::Tensor;

struct StepGraph::State {
  State(const models::gpt_neox::Model& model, kv_cache::Cache& cache, DeviceSampling sampling,
        const models::gpt_neox::StepOptions& options)
      : cache(cache), step(model, cache, options), sampling(std::move(sampling)), options(options) {
    const int64_t rows = cache.rows();
    active = at::ones({rows}, step.ids().options());
    recent = at::zeros({2, rows}, step.ids().options());
    steps = at::zeros({rows}, step.ids().options());
    on_host = at::zeros({2, rows}, at::TensorOptions(at::kLong).pinned_memory(true));
    ids.assign(rows, 0);
    active_on_device.assign(rows, true);
    if (options.graph) record();
  }

  void enqueue() {
    step.enqueue();
    if (sampling.is_greedy()) {
      ops::end_step(step.logits(), active, step.ids(), cache.lengths_on_device(), recent, steps,
                    options.early_starts);
    } else {
      sampling.pick(step.logits(), active, step.ids());
      cache.lengths_on_device().add_(active);
      recent.scatter_(0, steps.remainder(2).unsqueeze(0), step.ids().unsqueeze(0));
      steps.add_(1);
    }
    on_host.copy_(recent, /*non_blocking=*/true);
  }

  // One more step, behind those that run. on_host has room for two that the host has not seen.
  void launch() {
    if (options.graph) {
      graph.replay();
    } else {
      enqueue();
    }
    done[launched % 2].record();
    ++launched;
  }

  // Recording runs nothing, so the first step that runs is the first launch of the graph.
  void record() {
    const auto device = step.ids().get_device();
    const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool(false, device);
    if (!options.own_kernels) c10::cuda::getCurrentCUDAStream(device).synchronize();  // prompts
    // One at a time: threads may record at once, each for a session of its own.
    static std::mutex recording;
    const std::lock_guard lock(recording);
    const c10::cuda::CUDAStreamGuard guard(stream);
    if (!options.own_kernels) {
      // cuBLAS allocates for a stream at its first product. What this writes to the cache, the first step
      // writes again.
      step.enqueue();
      stream.synchronize();
    }
    graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    try {
      enqueue();
    } catch (...) {
      try {
        graph.capture_end();
      } catch (const std::exception&) {  // the error being thrown says more
      }
      throw;
    }
    graph.capture_end();
  }

  // A step that still runs writes to on_host.
  ~State() {
    if (launched == 0) return;
    try {
      done[(launched - 1) % 2].synchronize();
    } catch (const std::exception&) {  // the step has failed: it writes nothing
    }
  }

  void send(const std::vector<int64_t>& values, const Tensor& to) const {
    to.copy_(at::tensor(values, at::kLong));
  }

  kv_cache::Cache& cache;
  models::gpt_neox::GpuStep step;
  DeviceSampling sampling;
  models::gpt_neox::StepOptions options;
  Tensor active;         // int64 [rows] on the device
  Tensor recent, steps;  // ops::end_step
  Tensor on_host;        // recent, once done[launched % 2] has happened
  int64_t launched = 0;
  int64_t known = -1;        // the step that picked ids
  std::vector<int64_t> ids;  // zeros before the first step, as on the device
  std::vector<bool> active_on_device;
  at::cuda::CUDAGraph graph;
  at::cuda::CUDAEvent done[2];
};

StepGraph::StepGraph(const models::gpt_neox::Model& model, kv_cache::Cache& cache,
                     DeviceSampling sampling, const models::gpt_neox::StepOptions& options)
    : state_(std::make_unique<State>(model, cache, std::move(sampling), options)) {}

StepGraph::~StepGraph() = default;

void StepGraph::run(const std::vector<int64_t>& ids, const std::vector<bool>& active) {
  const at::NoGradGuard no_grad;
  State& state = *state_;
  const c10::cuda::CUDAGuard guard(state.step.ids().device());
  state.cache.check_room(active);
  // Inactive rows keep what is on the device: nobody reads it.
  const std::vector<int64_t>& there = picked();
  bool same = true;
  for (size_t row = 0; row < ids.size(); ++row) same &= !active[row] || ids[row] == there[row];
  if (!same) state.send(ids, state.step.ids());
  if (active != state.active_on_device) {
    state.send({active.begin(), active.end()}, state.active);
    state.active_on_device = active;
  }
  {
    const TraceRange range("decoding step");
    state.launch();
  }
  state.cache.count_step(active);
}

void StepGraph::run_on() {
  const at::NoGradGuard no_grad;
  State& state = *state_;
  const c10::cuda::CUDAGuard guard(state.step.ids().device());
  SEQFUSE_CHECK(state.launched > 0, "a step with what the one before picked: there is none");
  state.cache.check_room(state.active_on_device);
  state.launch();
  state.cache.count_step(state.active_on_device);
}

const Tensor& StepGraph::logits() const {
  return state_->step.logits();
}

const std::vector<int64_t>& StepGraph::picked(int64_t back) const {
  State& state = *state_;
  const int64_t step = state.launched - 1 - back;
  if (step >= 0 && step != state.known) {
    state.done[step % 2].synchronize();
    const auto rows = static_cast<int64_t>(state.ids.size());
    std::copy_n(state.on_host.const_data_ptr<int64_t>() + step % 2 * rows, rows, state.ids.begin());
    state.known = step;
  }
  return state.ids;
}

}  // namespace seqfuse::serving
#else
namespace seqfuse::serving {

struct StepGraph::State {
  at::Tensor logits;
  std::vector<int64_t> ids;
};

StepGraph::StepGraph(const models::gpt_neox::Model& model, kv_cache::Cache&, DeviceSampling,
                     const models::gpt_neox::StepOptions&) {
  throw_error<UsageError>("CUDA graphs on {}: this build has no CUDA", model.device().str());
}

StepGraph::~StepGraph() = default;

void StepGraph::run(const std::vector<int64_t>&, const std::vector<bool>&) {}

void StepGraph::run_on() {}

const at::Tensor& StepGraph::logits() const {
  return state_->logits;
}

const std::vector<int64_t>& StepGraph::picked(int64_t) const {
  return state_->ids;
}

}  // namespace seqfuse::serving
#endif
