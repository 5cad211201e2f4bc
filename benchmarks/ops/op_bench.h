// Shared by benchmarks of memory-bound operators: ours and plain PyTorch on the same inputs, with
// the minimum number of bytes to move, next to a copy of the same number of bytes.
#pragma once

#include <benchmark/benchmark.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <functional>
#include <string>
#include <utility>

namespace seqfuse::bench {

using at::Tensor;
using Work = std::function<void()>;

inline void measure(benchmark::State& state, double bytes, const Work& work) {
  work();
  for (auto _ : state) work();
  state.counters["bytes/s"] =
      benchmark::Counter(bytes, benchmark::Counter::kIsIterationInvariantRate);
}

// Registers name/seqfuse, name/torch and name/copy. make: called when the benchmark runs; returns
// the pair (ours, plain) of work over shared inputs. bytes: minimum read and written per run.
inline void compare(const std::string& name, double bytes,
                    const std::function<std::pair<Work, Work>()>& make) {
  const auto add = [&](const char* who, const std::function<void(benchmark::State&)>& run) {
    benchmark::RegisterBenchmark((name + "/" + who).c_str(), run)
        ->UseRealTime()
        ->MeasureProcessCPUTime()
        ->Unit(benchmark::kMicrosecond);
  };
  add("seqfuse", [=](benchmark::State& state) { measure(state, bytes, make().first); });
  add("torch", [=](benchmark::State& state) { measure(state, bytes, make().second); });
  add("copy", [=](benchmark::State& state) {
    const Tensor from = at::zeros({static_cast<int64_t>(bytes / 8)}), to = at::empty_like(from);
    measure(state, bytes, [&] { to.copy_(from); });
  });
}

// Forward and backward to all leaves, for a fixed gradient of the result.
inline Work with_backward(const std::function<Tensor(const std::vector<Tensor>&)>& f,
                          std::vector<Tensor> leaves) {
  for (Tensor& leaf : leaves) leaf = leaf.detach().requires_grad_();
  const Tensor dy = at::randn_like(f(leaves));
  return [=] { benchmark::DoNotOptimize(torch::autograd::grad({f(leaves)}, leaves, {dy})); };
}

}  // namespace seqfuse::bench
