// The first product of a fused HSTU layer with its bias and SiLU, in bfloat16 on a GPU: width 1024,
// 4 heads of 256. seqfuse: one kernel; two_kernels: cuBLASLt's product with its bias, then
// PyTorch's SiLU. Both write z and y. TFLOP/s count only the product.
//
//   ops_bench --benchmark_filter=matmul_silu; once more with SEQFUSE_FORCE_SM80=1 for the other
//   kernel of an SM 9.0
#include "benchmarks/ops/cuda_bench.h"
#include "ops/torch/gemm/matmul.h"

#ifdef SEQFUSE_HAS_CUDA
namespace seqfuse::bench::matmul_silu_bench {
namespace {

constexpr int64_t kWidth = 1024, kColumns = 4096;

void run(benchmark::State& state, int64_t tokens) {
  if (!torch::cuda::is_available()) {
    state.SkipWithError("no GPU on this machine");
    return;
  }
  const c10::cuda::CUDAStreamGuard stream(
      c10::cuda::getStreamFromPool());  // graphs need a side stream
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
  const Tensor a = at::randn({tokens, kWidth}, options);
  const Tensor b = at::randn({kWidth, kColumns}, options) / 32;
  const Tensor bias = at::randn({kColumns}, options);
  const Tensor y = at::empty({tokens, kColumns}, options), z = at::empty_like(y);
  Timed ours([=] { ops::matmul_silu_into(y, z, a, b, bias); });
  Timed product([=] { ops::matmul_into(z, a, b, {.bias = bias}); });
  Timed two_kernels([=] {
    ops::matmul_into(z, a, b, {.bias = bias});
    Tensor out = y;
    at::silu_out(out, z);
  });
  for (auto _ : state) {
    ours.take_turn();
    product.take_turn();
    two_kernels.take_turn();
  }
  const auto report = [&](const std::string& who, Timed& timed) {
    const double flops = 2.0 * static_cast<double>(tokens * kWidth * kColumns);
    state.counters[who + "_gpu_us"] = timed.gpu_us();
    state.counters[who + "_TFLOPs"] = flops / timed.gpu_us() * 1e-6;
  };
  report("seqfuse", ours);
  report("product", product);
  report("two_kernels", two_kernels);
}

const bool registered = [] {
  for (const int64_t tokens : {32768, 131072}) {
    const std::string name = "matmul_silu/cuda/" + std::to_string(tokens);
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& s) { run(s, tokens); })
        ->Iterations(11)
        ->Unit(benchmark::kMillisecond);
  }
  return true;
}();

}  // namespace
}  // namespace seqfuse::bench::matmul_silu_bench
#endif
