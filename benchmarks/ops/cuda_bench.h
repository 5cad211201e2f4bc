// Timings on a GPU by two clocks. gpu_us: GPU time per call, from events around replays of a graph
// of many calls. wall_us: time per call in a program that launches one call after another. Ours,
// PyTorch's and a device copy of the same number of bytes alternate in one loop; each figure is the
// median over the rounds. JSON: --benchmark_filter=cuda --benchmark_out=NAME.json
// --benchmark_out_format=json
#pragma once

#include "benchmarks/ops/op_bench.h"

#ifdef SEQFUSE_HAS_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/cuda.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

namespace seqfuse::bench {

constexpr int kCalls = 20;  // calls per graph, and per reading of the wall clock

inline double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

// One contestant: its work, recorded once in a graph.
class Timed {
 public:
  explicit Timed(Work work)
      : work_(std::move(work)), graph_(std::make_unique<at::cuda::CUDAGraph>()) {
    for (int i = 0; i < 3; ++i) work_();
    c10::cuda::getCurrentCUDAStream().synchronize();
    graph_->capture_begin();
    for (int i = 0; i < kCalls; ++i) work_();
    graph_->capture_end();
    graph_->replay();
  }

  void take_turn() {
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
    float milliseconds = 0;
    C10_CUDA_CHECK(cudaEventRecord(begin_.get(), stream));
    graph_->replay();
    C10_CUDA_CHECK(cudaEventRecord(end_.get(), stream));
    C10_CUDA_CHECK(cudaEventSynchronize(end_.get()));
    C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()));
    gpu_us_.push_back(milliseconds * 1e3 / kCalls);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) work_();
    c10::cuda::getCurrentCUDAStream().synchronize();
    const std::chrono::duration<double, std::micro> wall = std::chrono::steady_clock::now() - start;
    wall_us_.push_back(wall.count() / kCalls);
  }

  double gpu_us() { return median(gpu_us_); }
  double wall_us() { return median(wall_us_); }

 private:
  struct DestroyEvent {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  using Event = std::unique_ptr<CUevent_st, DestroyEvent>;
  static Event make_event() {
    cudaEvent_t event = nullptr;
    C10_CUDA_CHECK(cudaEventCreate(&event));
    return Event(event);
  }

  Work work_;
  std::unique_ptr<at::cuda::CUDAGraph> graph_;
  Event begin_ = make_event(), end_ = make_event();
  std::vector<double> gpu_us_, wall_us_;
};

// Backward only: the forward pass runs once, and its results are kept.
inline Work backward_alone(const std::function<Tensor(const std::vector<Tensor>&)>& f,
                           std::vector<Tensor> leaves) {
  for (Tensor& leaf : leaves) leaf = leaf.detach().requires_grad_();
  const Tensor y = f(leaves), dy = at::randn_like(y);
  return [y, leaves, dy] { torch::autograd::grad({y}, leaves, {dy}, /*retain_graph=*/true); };
}

// Registers name, with counters for ours, PyTorch's and a copy. make: called when the benchmark
// runs; returns the pair (ours, plain) of work over shared inputs. bytes: as in compare().
inline void compare_cuda(const std::string& name, double bytes,
                         const std::function<std::pair<Work, Work>()>& make) {
  const auto run = [=](benchmark::State& state) {
    if (!torch::cuda::is_available()) {
      state.SkipWithError("no GPU on this machine");
      return;
    }
    const c10::cuda::CUDAStreamGuard stream(
        c10::cuda::getStreamFromPool());  // graphs need a side stream
    const auto [ours, plain] = make();
    const Tensor from = at::zeros({static_cast<int64_t>(bytes / 2)},
                                  at::TensorOptions().device(at::kCUDA).dtype(at::kByte));
    const Tensor to = at::empty_like(from);
    std::vector<Timed> timed;
    timed.emplace_back(ours);
    timed.emplace_back(plain);
    timed.emplace_back([=] { to.copy_(from); });
    for (auto _ : state) {
      for (Timed& contestant : timed) contestant.take_turn();
    }
    const char* names[] = {"seqfuse", "torch", "copy"};
    for (size_t i = 0; i < timed.size(); ++i) {
      const std::string who = names[i];
      state.counters[who + "_gpu_us"] = timed[i].gpu_us();
      state.counters[who + "_wall_us"] = timed[i].wall_us();
      state.counters[who + "_GB/s"] = bytes / timed[i].gpu_us() * 1e-3;
    }
  };
  benchmark::RegisterBenchmark(name.c_str(), run)->Iterations(21)->Unit(benchmark::kMillisecond);
}

inline void describe_gpu() {
  cudaDeviceProp properties{};
  int driver = 0;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) return;
  cudaDriverGetVersion(&driver);
  benchmark::AddCustomContext("gpu", properties.name);
  benchmark::AddCustomContext("cuda_driver", std::to_string(driver));
}

inline const std::vector<std::pair<at::ScalarType, const char*>> kCudaTypes{
    {at::kFloat, "float32"}, {at::kHalf, "float16"}, {at::kBFloat16, "bfloat16"}};

}  // namespace seqfuse::bench
#endif
