// HSTU attention on the CPU at two shapes: a training batch of the ml-1m experiment (both biases)
// and one of ranking at scale. GFLOP/s counts the pairs under the causal mask: 2 products forward,
// 5 backward, 2 d FLOP per pair and head each. "Peak" is measured with register-only multiply-adds.
// CPU time is summed over threads.
#include <benchmark/benchmark.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "base/random.h"
#include "ops/torch/ops.h"

namespace seqfuse::hstu_attention_bench {
namespace {

using at::Tensor;

struct Shape {
  const char* name;
  int64_t heads, head_dim;
  std::vector<int64_t> lengths;
  bool bias;
};

// 128 histories: a third cut at 200, the others log-normal; 130 events on average.
Shape ml_1m() {
  Shape shape{"ml_1m", 1, 50, {}, true};
  Random random(1);
  for (int i = 0; i < 128; ++i) {
    const double length = std::exp(4.75 + 0.9 * random.normal());
    shape.lengths.push_back(static_cast<int64_t>(std::clamp(length, 20.0, 200.0)));
  }
  return shape;
}

Shape ranking() {
  return {"ranking", 4, 128, {4196, 2048, 1500, 700}, false};
}

struct Batch {
  Tensor uvqk, offsets, dout;
  ops::HstuAttentionOptions options;
  std::vector<Tensor> leaves;
  double flop_per_product = 0;
  int64_t tokens = 0;

  explicit Batch(const Shape& shape) {
    at::manual_seed(1);
    std::vector<int64_t> ends{0}, times;
    for (const int64_t n : shape.lengths) {
      ends.push_back(ends.back() + n);
      flop_per_product += static_cast<double>(n) * static_cast<double>(n + 1) *
                          static_cast<double>(shape.heads * shape.head_dim);
      int64_t now = 956'700'000;
      Random random(static_cast<uint64_t>(n));
      for (int64_t i = 0; i < n; ++i) {
        times.push_back(now);
        now += random.below(12) == 0 ? static_cast<int64_t>(random.below(1'000'000))
                                     : static_cast<int64_t>(random.below(60));
      }
    }
    tokens = ends.back();
    offsets = at::tensor(ends, at::kLong);
    uvqk = at::randn({tokens, 4 * shape.heads, shape.head_dim});
    const auto parts = uvqk.split(shape.heads, 1);
    leaves = {parts[2].detach().requires_grad_(), parts[3].detach().requires_grad_(),
              parts[1].detach().requires_grad_()};
    dout = at::randn({tokens, shape.heads, shape.head_dim});
    options = {.alpha = shape.bias ? 1 : 1 / std::sqrt(static_cast<double>(shape.head_dim)),
               .scaling_seqlen = 211};
    if (shape.bias) {
      options.position_bias = (0.02 * at::randn({421})).requires_grad_();
      options.time_bias = (0.02 * at::randn({129})).requires_grad_();
      options.timestamps = at::tensor(times, at::kLong);
      leaves.insert(leaves.end(), {*options.position_bias, *options.time_bias});
    }
  }

  Tensor forward() const {
    return ops::hstu_attention(leaves[0], leaves[1], leaves[2], offsets, offsets, options);
  }

  void report(benchmark::State& state, int products) const {
    state.counters["GFLOP/s"] = benchmark::Counter(
        products * flop_per_product * 1e-9 * static_cast<double>(state.iterations()),
        benchmark::Counter::kIsRate);
    state.counters["tokens/s"] = benchmark::Counter(
        static_cast<double>(tokens * state.iterations()), benchmark::Counter::kIsRate);
  }
};

void forward(benchmark::State& state, const Shape& shape) {
  set_num_threads(static_cast<int>(state.range(0)));
  const at::NoGradGuard no_grad;
  const Batch batch(shape);
  for (auto _ : state) benchmark::DoNotOptimize(batch.forward());
  batch.report(state, 2);
}

void backward(benchmark::State& state, const Shape& shape) {
  set_num_threads(static_cast<int>(state.range(0)));
  const Batch batch(shape);
  const Tensor out = batch.forward();
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        torch::autograd::grad({out}, batch.leaves, {batch.dout}, /*retain_graph=*/true));
  }
  batch.report(state, 5);
}

[[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]] void multiply_adds(
    std::array<float, 256>& sums, int64_t count) {
  std::array<float, 256> local = sums;
  for (int64_t i = 0; i < count; ++i) {
    for (float& sum : local) sum = sum * 0.999F + 0.001F;
  }
  sums = local;
}

void peak(benchmark::State& state) {
  set_num_threads(static_cast<int>(state.range(0)));
  constexpr int64_t kCount = 100'000;
  const int64_t threads = state.range(0);
  std::vector<std::array<float, 256>> sums(static_cast<size_t>(threads));
  for (auto _ : state) {
    parallel_tasks(threads,
                   [&](int64_t t) { multiply_adds(sums[static_cast<size_t>(t)], kCount); });
    benchmark::DoNotOptimize(sums);
  }
  state.counters["GFLOP/s"] = benchmark::Counter(
      2.0 * 256 * kCount * 1e-9 * static_cast<double>(threads * state.iterations()),
      benchmark::Counter::kIsRate);
}

const bool registered = [] {
  const auto add = [](const std::string& name, auto&& function) {
    benchmark::RegisterBenchmark(("hstu_attention/" + name).c_str(), function)
        ->Arg(1)
        ->Arg(num_threads())
        ->ArgName("threads")
        ->UseRealTime()
        ->MeasureProcessCPUTime()
        ->Unit(benchmark::kMillisecond);
  };
  add("peak", peak);
  for (const Shape& shape : {ml_1m(), ranking()}) {
    const std::string name = shape.name;
    add(name + "/forward", [shape](benchmark::State& state) { forward(state, shape); });
    add(name + "/backward", [shape](benchmark::State& state) { backward(state, shape); });
  }
  return true;
}();

}  // namespace
}  // namespace seqfuse::hstu_attention_bench
