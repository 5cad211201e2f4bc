// Times of a decoding step: one CUDA graph a token with the shape of Pythia-2.8B and random weights, or
// one kernel of every layer.
#pragma once

#include <algorithm>
#include <vector>

#include "benchmarks/kernels/device_memory.cuh"
#include "ops/kernels/decode/step_attention.h"
#include "ops/kernels/decode/step_ends.h"
#include "ops/kernels/decode/step_linear.h"
#include "ops/kernels/decode/step_norm.h"

namespace seqfuse::bench {

using namespace ops;

struct Model {
  int layers = 32, hidden = 2560, inner = 10240, heads = 32, dim = 80, rotary = 20;
  int vocabulary = 50304;
};

enum class What { token, norms, in, attention, out };
inline const char* name_of(What what) {
  const char* const names[] = {"a token", "norms", "[W_qkv | W_up]", "attention",
                               "[W_out | W_down]"};
  return names[static_cast<int>(what)];
}

// A token, or one kernel of every layer, as one graph.
inline void time_model(const Model& m, int64_t cache, int batch, bool int8, double ceiling,
                       What what = What::token) {
  using T = __half;
  const StepRule rule{.start = 4, .recent = cache - 5, .prune_every = 1};
  const int64_t slots = cache;
  const auto bytes_of = [&](int64_t n, int64_t k) { return n * k * (int8 ? 1 : 2); };
  std::vector<Device<char>*> kept;
  const auto memory = [&](int64_t bytes) {
    kept.push_back(new Device<char>(static_cast<size_t>(bytes)));
    return kept.back()->data;
  };
  const int64_t most_n = std::max<int64_t>(m.vocabulary, m.inner);
  std::vector<float> ones(most_n, 1e-3F);
  Device<float> scales(ones);
  Device<T> vectors(std::vector<T>(most_n, make<T>(0.01)));
  Device<double> frequencies(std::vector<double>(m.rotary / 2, 0.1));
  Device<int64_t> lengths(std::vector<int64_t>(batch, 4 * cache)),
      ids(std::vector<int64_t>(batch, 5)), active(std::vector<int64_t>(batch, 1));
  Device<T> hidden(batch * m.hidden), qkv(batch * 3 * m.hidden), normed(batch * m.hidden),
      normed_for_mlp(batch * m.hidden), inner(batch * m.inner), context(batch * m.hidden),
      logits(size_t(batch) * m.vocabulary), angles(batch * 4 * m.rotary);
  const char* embedding = memory(int64_t{m.vocabulary} * m.hidden * 2);
  double weights_in = 0, weights_out = 0, of_head = 0, cached = 0;  // bytes
  const auto linear = [&](const void* x, int64_t k, int64_t n, void* y, double& bytes,
                          LinearActivation act = LinearActivation::none) {
    StepLinear l;
    l.weight = memory(bytes_of(n, k));
    bytes += static_cast<double>(bytes_of(n, k));
    l.scales = int8 ? scales.data : nullptr;
    l.bias = vectors.data;
    l.x = x;
    l.activation = act;
    l.y = y;
    l.n = n;
    l.k = k;
    return l;
  };
  struct Layer {
    StepLinearParams in, out;
    StepAttentionParams attention;
  };
  std::vector<Layer> layers;
  for (int i = 0; i < m.layers; ++i) {
    Layer layer;
    layer.in.linear[0] = linear(normed.data, m.hidden, 3 * m.hidden, qkv.data, weights_in);
    layer.in.linear[1] = linear(normed_for_mlp.data, m.hidden, m.inner, inner.data, weights_in,
                                LinearActivation::gelu_erf);
    layer.out.linear[0] = linear(context.data, m.hidden, m.hidden, hidden.data, weights_out);
    layer.out.linear[1] = linear(inner.data, m.inner, m.hidden, nullptr, weights_out);
    layer.out.residual = hidden.data;
    for (StepLinearParams* p : {&layer.in, &layer.out}) {
      p->count = 2;
      p->batch = batch;
    }
    const int64_t cache_bytes = int64_t{batch} * m.heads * slots * m.dim * 2;
    layer.attention = {.qkv = qkv.data,
                       .keys = memory(cache_bytes),
                       .values = memory(cache_bytes),
                       .lengths = lengths.data,
                       .angles = angles.data,
                       .out = context.data,
                       .batch = batch,
                       .heads = m.heads,
                       .head_dim = m.dim,
                       .slots = slots,
                       .rotary_dims = m.rotary,
                       .rule = rule};
    layer.attention.workspace = memory(step_attention_workspace_bytes(layer.attention));
    cached += 2.0 * static_cast<double>(cache_bytes);
    layers.push_back(layer);
  }
  StepLinearParams head;
  head.linear[0] = linear(normed.data, m.hidden, m.vocabulary, logits.data, of_head);
  head.linear[0].bias = nullptr;
  head.batch = batch;

  const StepNormParams norms{.x = hidden.data,
                             .weight = {vectors.data, vectors.data},
                             .bias = {vectors.data, vectors.data},
                             .y = {normed.data, normed_for_mlp.data},
                             .count = 2,
                             .batch = batch,
                             .size = m.hidden};

  cudaStream_t stream;
  must(cudaStreamCreate(&stream), "stream");
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  const auto wants = [&](What kernel) { return what == What::token || what == kernel; };
  if (what == What::token) {
    must(begin_step_cuda({.embedding = embedding,
                          .ids = ids.data,
                          .lengths = lengths.data,
                          .frequencies = frequencies.data,
                          .hidden = hidden.data,
                          .angles = angles.data,
                          .batch = batch,
                          .hidden_size = m.hidden,
                          .rotary_dims = m.rotary,
                          .rule = rule},
                         DType::f16, stream),
         "begin");
  }
  for (const Layer& layer : layers) {
    if (wants(What::norms)) must(step_norm_cuda(norms, DType::f16, stream), "norms");
    if (wants(What::in)) must(step_linear_cuda(layer.in, DType::f16, stream), "in");
    if (wants(What::attention))
      must(step_attention_cuda(layer.attention, DType::f16, stream), "attention");
    if (wants(What::out)) must(step_linear_cuda(layer.out, DType::f16, stream), "out");
  }
  if (what == What::token) {
    must(step_norm_cuda(norms, DType::f16, stream), "norm");
    must(step_linear_cuda(head, DType::f16, stream), "head");
    must(end_step_cuda({.logits = logits.data,
                        .ids = ids.data,
                        .lengths = lengths.data,
                        .active = active.data,
                        .batch = batch,
                        .vocabulary = m.vocabulary},
                       DType::f16, stream),
         "end");
  }
  must(cudaStreamEndCapture(stream, &graph), "end of capture");
  must(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  std::vector<float> times;
  for (int repeat = 0; repeat < 7; ++repeat) {
    cudaEventRecord(begin, stream);
    for (int i = 0; i < 50; ++i) must(cudaGraphLaunch(exec, stream), "launch");
    cudaEventRecord(end, stream);
    must(cudaStreamSynchronize(stream), "tokens");
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    times.push_back(ms / 50);
  }
  std::sort(times.begin(), times.end());
  const double bytes = what == What::token       ? weights_in + weights_out + of_head + cached
                       : what == What::in        ? weights_in
                       : what == What::out       ? weights_out
                       : what == What::attention ? cached
                                                 : 0;
  const double ms = times[3], speed = bytes / ms / 1e9;
  const char* const type = int8 ? "int8" : "fp16";
  if (what == What::token) {
    std::printf(
        "cache %ld batch %d %s: %.3f ms a token (%.3f to %.3f), %.2f TB/s, %.0f %% of a copy\n",
        long(cache), batch, type, ms, times[0], times[6], speed, 100 * speed / ceiling);
  } else {
    std::printf("cache %ld batch %d %s: %s %.2f us, its bytes at a copy's speed %.2f us\n",
                long(cache), batch, type, name_of(what), ms * 1e3 / m.layers,
                bytes / ceiling / 1e6 / m.layers);
  }
  std::fflush(stdout);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  for (auto* d : kept) delete d;
}

inline double copy_speed() {
  Device<char> from(size_t{2} << 30), to(size_t{2} << 30);
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  double best = 0;
  for (int i = 0; i < 10; ++i) {
    cudaEventRecord(begin);
    cudaMemcpyAsync(to.data, from.data, from.size, cudaMemcpyDeviceToDevice);
    cudaEventRecord(end);
    cudaEventSynchronize(end);
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    best = std::max(best, 2.0 * static_cast<double>(from.size) / ms / 1e9);
  }
  return best;
}

}  // namespace seqfuse::bench
