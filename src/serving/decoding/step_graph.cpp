#include "serving/decoding/step_graph.h"

#include "base/error.h"

#ifdef SEQFUSE_HAS_CUDA
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "models/gpt_neox/gpu_step.h"
#include "ops/torch/decode_step.h"

namespace seqfuse::serving {
using at::Tensor;

struct StepGraph::State {
  State(const models::gpt_neox::Model& model, kv_cache::Cache& cache, DeviceSampling sampling)
      : cache(cache), step(model, cache), sampling(std::move(sampling)) {
    const int64_t rows = cache.rows();
    active = at::ones({rows}, step.ids().options());
    on_host = at::zeros({rows}, at::TensorOptions(at::kLong).pinned_memory(true));
    ids.assign(rows, 0);
    active_on_device.assign(rows, true);
    record();
  }

  void enqueue() {
    step.enqueue();
    if (sampling.is_greedy()) {
      ops::end_step(step.logits(), active, step.ids(), cache.lengths_on_device());
    } else {
      sampling.pick(step.logits(), active, step.ids());
      cache.lengths_on_device().add_(active);
    }
    on_host.copy_(step.ids(), /*non_blocking=*/true);
  }

  // Recording runs nothing, so the first step that runs is the first launch of the graph.
  void record() {
    const auto device = step.ids().get_device();
    const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool(false, device);
    // One at a time: threads may record at once, each for a session of its own.
    static std::mutex recording;
    const std::lock_guard lock(recording);
    const c10::cuda::CUDAStreamGuard guard(stream);
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
    if (known) return;
    try {
      done.synchronize();
    } catch (const std::exception&) {  // the step has failed: it writes nothing
    }
  }

  void send(const std::vector<int64_t>& values, const Tensor& to) const {
    to.copy_(at::tensor(values, at::kLong));
  }

  kv_cache::Cache& cache;
  models::gpt_neox::GpuStep step;
  DeviceSampling sampling;
  Tensor active;             // int64 [rows] on the device
  Tensor on_host;            // the ids, once done has happened
  std::vector<int64_t> ids;  // picked, where they are known
  std::vector<bool> active_on_device;
  bool known = true;  // ids are those on the device
  at::cuda::CUDAGraph graph;
  at::cuda::CUDAEvent done;
};

StepGraph::StepGraph(const models::gpt_neox::Model& model, kv_cache::Cache& cache,
                     DeviceSampling sampling)
    : state_(std::make_unique<State>(model, cache, std::move(sampling))) {}

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
  state.graph.replay();
  state.done.record();
  state.known = false;
  state.cache.count_step(active);
}

const Tensor& StepGraph::logits() const {
  return state_->step.logits();
}

const std::vector<int64_t>& StepGraph::picked() const {
  State& state = *state_;
  if (!state.known) {
    state.done.synchronize();
    const int64_t* values = state.on_host.const_data_ptr<int64_t>();
    std::copy_n(values, state.ids.size(), state.ids.begin());
    state.known = true;
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

StepGraph::StepGraph(const models::gpt_neox::Model& model, kv_cache::Cache&, DeviceSampling) {
  throw_error<UsageError>("CUDA graphs on {}: this build has no CUDA", model.device().str());
}

StepGraph::~StepGraph() = default;

void StepGraph::run(const std::vector<int64_t>&, const std::vector<bool>&) {}

const at::Tensor& StepGraph::logits() const {
  return state_->logits;
}

const std::vector<int64_t>& StepGraph::picked() const {
  return state_->ids;
}

}  // namespace seqfuse::serving
#endif
