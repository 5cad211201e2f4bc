// The kernels of softmax attention under a mask alone; needs only the CUDA runtime.
//
//   masked_attention_kernel_bench --check [forward] [bf16] [quick] [HEAD_DIM]   against float64
//   masked_attention_kernel_bench --time [forward] [HEAD_DIM] [KIND...]   ms, and TFLOP/s of the
//                                                                       allowed elements
//   masked_attention_kernel_bench --once KIND LENGTH   one launch of each pass, for a profiler
//
// --check fails with a list of what is wrong. --time: 16 sequences, 12 heads, float16, contiguous, on
// a card at rest; KIND: sliding, longformer, bigbird, dilated, causal, graph (4 keys a query). rows
// ms: the kernel by rows, where it is not out of place. SEQFUSE_FORCE_SM80=1: kernels for SM 8.0.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "benchmarks/kernels/masked_attention_check.cuh"

namespace seqfuse::bench {
namespace {

masks::Mask timed_mask(const std::string& kind, int64_t n) {
  using namespace masks;
  if (kind == "sliding") return window(n, n, 64, 64);
  if (kind == "longformer") return longformer(n, n, 64, 64);
  if (kind == "bigbird") return bigbird(n, n, 96, 64, 3, 1);
  if (kind == "dilated") return dilated(n, n, 256, 256, 4);
  if (kind == "causal") return causal(n, n);
  if (kind == "graph") {
    std::vector<int64_t> offsets{0}, columns;
    for (int64_t q = 0; q < n; ++q) {
      for (int64_t i = 0; i < 4; ++i) columns.push_back(i * n / 4 + q * 7919 % (n / 4));
      offsets.push_back(static_cast<int64_t>(columns.size()));
    }
    return from_csr(1, n, n, offsets, columns);
  }
  std::printf("kind is %s; expected sliding, longformer, bigbird, dilated, causal or graph\n",
              kind.c_str());
  std::exit(2);
}

const std::vector<std::string> kTimedKinds{"sliding", "longformer", "bigbird",
                                           "dilated", "causal",     "graph"};

// kinds: all if empty.
void time_all_masked(int64_t head_dim, const std::vector<std::string>& kinds, bool only_forward) {
  std::printf("%-11s %5s %4s  %8s %9s  %9s %9s  %8s  %9s %9s  %9s\n", "mask", "n", "d", "density",
              "in blocks", "fwd ms", "TFLOP/s", "lists ms", "bwd ms", "TFLOP/s", "rows ms");
  for (const std::string& kind : kinds.empty() ? kTimedKinds : kinds) {
    for (const int64_t n : {1024, 2048, 4096}) {
      const masks::Mask mask = timed_mask(kind, n);
      const MaskedSizes sizes{16, 12, 12, head_dim};
      const MaskedProblem p(mask, sizes, /*bf16=*/false, Purpose::time);
      const masks::MaskCounts counts = p.blocks.counts();
      const double flops = 4.0 * static_cast<double>(counts.allowed * sizes.batch * sizes.heads) *
                           static_cast<double>(head_dim);
      const auto time = [](auto&& launch) { return median_ms(Before::kRest, launch); };
      const double forward = time([&](cudaStream_t stream) { p.forward(stream); });
      std::printf("%-11s %5ld %4ld  %6.2f %% %7.1f %%  %9.4f %9.1f", kind.c_str(),
                  static_cast<long>(n), static_cast<long>(head_dim), 100 * counts.density(),
                  100 * counts.efficiency(), forward, flops / forward * 1e-9);
      if (!only_forward) {
        const ListsOnGpu lists(mask);
        const double build = time([&](cudaStream_t stream) {
          lists.count(stream);
          lists.fill(stream);
        });
        const double backward = time([&](cudaStream_t stream) { p.backward(stream); });
        std::printf("  %8.4f  %9.4f %9.1f", build, backward, 2.5 * flops / backward * 1e-9);
      }
      if (!only_forward && (kind == "sliding" || kind == "graph")) {
        std::printf("  %9.4f", time([&](cudaStream_t stream) { p.forward_by_rows(stream); }));
      }
      std::printf("\n");
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace seqfuse::bench

int main(int argc, char** argv) {
  using namespace seqfuse::bench;
  const std::string mode = argc > 1 ? argv[1] : "--check";
  const auto given = [&](const char* word) {
    return std::any_of(argv, argv + argc,
                       [&](const char* arg) { return arg == std::string(word); });
  };
  int head_dim = 0;
  for (int i = 2; i < argc; ++i) head_dim = std::max(head_dim, std::atoi(argv[i]));
  if (mode == "--time") {
    std::vector<std::string> kinds;
    for (const std::string& kind : kTimedKinds)
      if (given(kind.c_str())) kinds.push_back(kind);
    time_all_masked(head_dim > 0 ? head_dim : 64, kinds, given("forward"));
    return 0;
  }
  if (mode == "--once" && argc > 3) {
    const MaskedProblem p(timed_mask(argv[2], std::atol(argv[3])), {16, 12, 12, 64}, false,
                          Purpose::time);
    p.forward();
    p.backward();
    must(cudaDeviceSynchronize(), "once");
    return 0;
  }
  const int failures = check_all_lists() +
                       check_all_masked(!given("forward"), given("bf16"), head_dim, given("quick"));
  std::printf("%s: %d failures\n", failures ? "FAILED" : "passed", failures);
  return failures != 0;
}
