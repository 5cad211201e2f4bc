// Layer norm on the CPU and on CUDA.
//
// CUDA has two clocks. gpu_us: time on the GPU per call, from events around replays of a graph of
// many calls. wall_us: time per call of a program that launches one call after another. Ours,
// PyTorch's and a device copy of as many bytes take turns in the same loop; each figure is the
// median over the turns. JSON: --benchmark_filter=cuda --benchmark_out=layer_norm.json
// --benchmark_out_format=json
#include "benchmarks/ops/op_bench.h"
#include "ops/torch/ops.h"

#ifdef SEQFUSE_HAS_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <chrono>
#include <memory>
#endif

namespace seqfuse::bench {
namespace {

Tensor ours(const std::vector<Tensor>& in) {
  return ops::layer_norm(in[0], in[1], in[2], 1e-5);
}

Tensor plain(const std::vector<Tensor>& in) {
  return at::layer_norm(in[0], {in[0].size(1)}, in[1], in[2], 1e-5);
}

std::vector<Tensor> make_inputs(int64_t rows, int64_t dim, at::TensorOptions options = {}) {
  return {at::randn({rows, dim}, options), at::randn({dim}, options), at::randn({dim}, options)};
}

std::string shape_name(int64_t rows, int64_t dim) {
  return std::to_string(rows) + "x" + std::to_string(dim);
}

void add_cpu(int64_t rows, int64_t dim) {
  const double matrix = static_cast<double>(rows * dim * 4);
  compare("layer_norm/cpu/forward/" + shape_name(rows, dim), 2 * matrix, [=] {
    const auto in = make_inputs(rows, dim);
    return std::pair<Work, Work>{[=] { benchmark::DoNotOptimize(ours(in)); },
                                 [=] { benchmark::DoNotOptimize(plain(in)); }};
  });
  compare("layer_norm/cpu/forward_backward/" + shape_name(rows, dim), 5 * matrix, [=] {
    const auto in = make_inputs(rows, dim);
    return std::pair<Work, Work>{with_backward(ours, in), with_backward(plain, in)};
  });
}

#ifdef SEQFUSE_HAS_CUDA

constexpr int kCalls = 20;  // in a graph, and between two readings of the wall clock

// One contestant: its work, once recorded in a graph.
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
  static double median(std::vector<double>& values) {
    std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
    return values[values.size() / 2];
  }

  Work work_;
  std::unique_ptr<at::cuda::CUDAGraph> graph_;
  Event begin_ = make_event(), end_ = make_event();
  std::vector<double> gpu_us_, wall_us_;
};

void run_cuda(benchmark::State& state, int64_t rows, int64_t dim, at::ScalarType type,
              bool backward) {
  if (!torch::cuda::is_available()) {
    state.SkipWithError("no GPU on this machine");
    return;
  }
  const c10::cuda::CUDAStreamGuard stream(
      c10::cuda::getStreamFromPool());  // graphs need a side stream
  const at::TensorOptions options = at::TensorOptions().device(at::kCUDA).dtype(type);
  auto in = make_inputs(rows, dim, options);
  const double bytes = static_cast<double>((backward ? 3 : 2) * rows * dim * at::elementSize(type));
  // Backward alone: the forward pass is recorded once, and its results kept.
  const auto work_of = [&](Tensor (*f)(const std::vector<Tensor>&)) -> Work {
    if (!backward) return [f, in] { f(in); };
    std::vector<Tensor> leaves;
    for (const Tensor& t : in) leaves.push_back(t.detach().requires_grad_());
    const Tensor y = f(leaves), dy = at::randn_like(y);
    return [y, leaves, dy] { torch::autograd::grad({y}, leaves, {dy}, /*retain_graph=*/true); };
  };
  const Tensor from = at::zeros({static_cast<int64_t>(bytes / 2)}, options.dtype(at::kByte));
  const Tensor to = at::empty_like(from);
  std::vector<Timed> timed;
  timed.emplace_back(work_of(ours));
  timed.emplace_back(work_of(plain));
  timed.emplace_back([=] { to.copy_(from); });
  for (auto _ : state) {
    for (Timed& contestant : timed) contestant.take_turn();
  }
  const char* names[] = {"seqfuse", "torch", "copy"};
  for (size_t i = 0; i < timed.size(); ++i) {
    const std::string name = names[i];
    state.counters[name + "_gpu_us"] = timed[i].gpu_us();
    state.counters[name + "_wall_us"] = timed[i].wall_us();
    state.counters[name + "_GB/s"] = bytes / timed[i].gpu_us() * 1e-3;
  }
}

void add_cuda(int64_t rows, int64_t dim, at::ScalarType type, const char* type_name) {
  for (const bool backward : {false, true}) {
    const std::string name = std::string("layer_norm/cuda/") +
                             (backward ? "backward/" : "forward/") + shape_name(rows, dim) + "/" +
                             type_name;
    benchmark::RegisterBenchmark(
        name.c_str(), [=](benchmark::State& state) { run_cuda(state, rows, dim, type, backward); })
        ->Iterations(21)
        ->Unit(benchmark::kMillisecond);
  }
}

void describe_gpu() {
  cudaDeviceProp properties{};
  int driver = 0;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) return;
  cudaDriverGetVersion(&driver);
  benchmark::AddCustomContext("gpu", properties.name);
  benchmark::AddCustomContext("cuda_driver", std::to_string(driver));
}

#endif

[[maybe_unused]] const bool added = [] {
  add_cpu(21000, 50);  // a batch of ml_1m_hstu.gin
  add_cpu(8192, 512);
#ifdef SEQFUSE_HAS_CUDA
  describe_gpu();
  for (const auto& [rows, dim] : {std::pair{int64_t{262144}, int64_t{64}},
                                  {131072, 256},
                                  {65536, 512},
                                  {65536, 1024},
                                  {16384, 4096},
                                  {4096, 16384}}) {
    add_cuda(rows, dim, at::kFloat, "float32");
    add_cuda(rows, dim, at::kHalf, "float16");
    add_cuda(rows, dim, at::kBFloat16, "bfloat16");
  }
#endif
  return true;
}();

}  // namespace
}  // namespace seqfuse::bench
