// Losses over tables of item rows: sampled softmax with per-position negatives, full softmax, the
// sampler, embedding lookup. Shapes: a training step of ml-1m, and a table larger than any cache.
// CPU time is summed over threads. GFLOP/s counts the products and both gradients, 2 D FLOP per
// pair each, and for full softmax the recomputed products.
#include <benchmark/benchmark.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "base/parallel.h"
#include "ops/torch/ops.h"

namespace seqfuse::sampled_softmax_bench {
namespace {

using at::Tensor;

struct Inputs {
  Tensor hidden, table, targets, negatives;

  explicit Inputs(const benchmark::State& state) {
    at::manual_seed(1);
    const int64_t positions = state.range(0), negatives_per_position = state.range(1),
                  rows = state.range(2), dim = state.range(3);
    hidden = ops::l2_normalize(at::randn({positions, dim}), 1e-6).requires_grad_();
    table = ops::l2_normalize(at::randn({rows, dim}), 1e-6).requires_grad_();
    targets = at::randint(1, rows, {positions}, at::kLong);
    negatives =
        ops::sample_uniform(at::arange(1, rows, at::kLong), positions, negatives_per_position, 1);
  }
};

void report(benchmark::State& state, int64_t products, int64_t passes) {
  state.counters["GFLOP/s"] =
      benchmark::Counter(2e-9 * static_cast<double>(products * passes * state.range(3)),
                         benchmark::Counter::kIsIterationInvariantRate);
  state.counters["threads"] = num_threads();
}

Tensor sampled_loss(const Inputs& in, bool sparse) {
  return ops::sampled_softmax_loss(in.hidden, in.table, in.targets, in.negatives, .05, sparse);
}

void sampled_softmax_forward(benchmark::State& state) {
  const Inputs in(state);
  const at::NoGradGuard no_grad;
  for (auto _ : state) benchmark::DoNotOptimize(sampled_loss(in, false));
  report(state, state.range(0) * (1 + state.range(1)), 1);
}

template <bool sparse>
void sampled_softmax_step(benchmark::State& state) {
  const Inputs in(state);
  const Tensor weights = at::full({state.range(0)}, 1. / static_cast<double>(state.range(0)));
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        torch::autograd::grad({sampled_loss(in, sparse)}, {in.hidden, in.table}, {weights}));
  }
  report(state, state.range(0) * (1 + state.range(1)), 3);
}

void full_softmax_step(benchmark::State& state) {
  const Inputs in(state);
  const Tensor catalogue = at::arange(1, state.range(2), at::kLong);
  const Tensor weights = at::full({state.range(0)}, 1. / static_cast<double>(state.range(0)));
  for (auto _ : state) {
    const Tensor losses = ops::full_softmax_loss(in.hidden, in.table, in.targets, catalogue, .05);
    benchmark::DoNotOptimize(torch::autograd::grad({losses}, {in.hidden, in.table}, {weights}));
  }
  report(state, state.range(0) * (state.range(2) - 1), 4);
}

template <bool sparse>
void embedding_step(benchmark::State& state) {
  const Inputs in(state);
  const Tensor dout = at::randn({state.range(0), state.range(3)});
  for (auto _ : state) {
    const Tensor out = ops::embedding_lookup(in.table, in.targets, sparse);
    benchmark::DoNotOptimize(torch::autograd::grad({out}, {in.table}, {dout}));
  }
}

void sample_negatives(benchmark::State& state) {
  const Tensor pool = at::arange(1, state.range(2), at::kLong);
  int64_t seed = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(ops::sample_uniform(pool, state.range(0), state.range(1), ++seed));
  }
}

// The same loss over gathered rows [T, 1 + K, D] in plain PyTorch.
void torch_step(benchmark::State& state) {
  const Inputs in(state);
  const Tensor weights = at::full({state.range(0)}, 1. / static_cast<double>(state.range(0)));
  const Tensor ids = at::cat({in.targets.unsqueeze(1), in.negatives.to(at::kLong)}, 1);
  Tensor collision = ids == in.targets.unsqueeze(1);
  collision.select(1, 0).fill_(false);
  for (auto _ : state) {
    const Tensor logits = at::einsum("td,tkd->tk", {in.hidden, at::embedding(in.table, ids)}) / .05;
    const Tensor losses = -at::log_softmax(logits.masked_fill(collision, -5e4), 1).select(1, 0);
    benchmark::DoNotOptimize(torch::autograd::grad({losses}, {in.hidden, in.table}, {weights}));
  }
  report(state, state.range(0) * (1 + state.range(1)), 3);
}

// Positions, negatives, rows of the table, dim.
using Shape = std::vector<int64_t>;
const Shape kMl1m{16000, 128, 3953, 50}, kLargeTable{4096, 128, 200000, 256};

void add(const char* name, void (*run)(benchmark::State&), const std::vector<Shape>& shapes) {
  auto* benchmark = benchmark::RegisterBenchmark(name, run);
  benchmark->ArgNames({"T", "K", "V", "D"})->Unit(benchmark::kMillisecond);
  benchmark->UseRealTime()->MeasureProcessCPUTime();
  for (const Shape& shape : shapes) benchmark->Args(shape);
}

[[maybe_unused]] const bool added = [] {
  add("sampled_softmax/forward", sampled_softmax_forward, {kMl1m, kLargeTable});
  add("sampled_softmax/step", sampled_softmax_step<false>, {kMl1m, kLargeTable});
  add("sampled_softmax/step_sparse", sampled_softmax_step<true>, {kMl1m, kLargeTable});
  add("sampled_softmax/step_torch", torch_step, {kMl1m});
  add("full_softmax/step", full_softmax_step, {kMl1m});
  add("embedding/step", embedding_step<false>, {kMl1m, kLargeTable});
  add("embedding/step_sparse", embedding_step<true>, {kMl1m, kLargeTable});
  add("sample_uniform", sample_negatives, {kMl1m, kLargeTable});
  return true;
}();

}  // namespace
}  // namespace seqfuse::sampled_softmax_bench
