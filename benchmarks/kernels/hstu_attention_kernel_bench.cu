// The HSTU attention kernels alone; needs only the CUDA runtime.
//
//   hstu_attention_kernel_bench --check [PASS] [bf16] [HEAD_DIM] [SHARE]  against float64
//   hstu_attention_kernel_bench --time [PASS] [loaded]        TFLOP/s next to FlashAttention-2's
//   hstu_attention_kernel_bench --cell CELL [PASS] [loaded]   timed alone
//   hstu_attention_kernel_bench --once CELL [PASS]            one launch
//
// PASS: forward or backward; both if omitted. SHARE: 0/5 to 4/5 together are all cases. CELL:
// d,N,batch,heads,biases[,shortest], as the members of Cell. loaded: timed on a card under load
// instead of at rest.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "benchmarks/kernels/hstu_attention_check.cuh"
#include "benchmarks/kernels/hstu_attention_time.cuh"

int main(int argc, char** argv) {
  using namespace seqfuse::bench;
  const std::string mode = argc > 1 ? argv[1] : "--check";
  const auto given = [&](const char* word) {
    return std::any_of(argv, argv + argc,
                       [&](const char* arg) { return arg == std::string(word); });
  };
  const bool forward = !given("backward"), backward = !given("forward");
  const Before before = given("loaded") ? Before::kLoad : Before::kRest;
  if (mode == "--time") {
    time_all(before, forward, backward);
    return 0;
  }
  if (mode == "--cell" || mode == "--once") {
    Cell cell{64, 1024, 32, 4, 0, 0, false};
    int biases = 0;
    if (argc > 2)
      std::sscanf(argv[2], "%d,%d,%d,%d,%d,%d", &cell.head_dim, &cell.length, &cell.batch,
                  &cell.heads, &biases, &cell.shortest);
    cell.biases = biases != 0;
    if (mode == "--cell")
      time_cell(cell, before, forward, backward);
    else
      run_cell(cell, forward, backward);
    return 0;
  }
  int head_dim = 0;
  Share share;
  for (int i = 2; i < argc; ++i) {
    if (!std::strchr(argv[i], '/')) {
      head_dim = std::max(head_dim, std::atoi(argv[i]));
    } else if (std::sscanf(argv[i], "%d/%d", &share.part, &share.parts) != 2 || share.part < 0 ||
               share.part >= share.parts) {
      std::printf("share is %s; expected PART/PARTS, PART from 0 to PARTS - 1\n", argv[i]);
      return 2;
    }
  }
  const int failures = check_all(backward, given("bf16"), head_dim, share);
  std::printf("%s: %d failures\n", failures ? "FAILED" : "passed", failures);
  return failures != 0;
}
