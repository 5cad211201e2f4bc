// The HSTU attention kernels alone: needs the CUDA runtime and nothing else.
//
//   hstu_attention_kernel_bench --check [forward|backward]   against the formula in float64
//   hstu_attention_kernel_bench --time [forward|backward] [loaded]   TFLOP/s beside
//   FlashAttention-2's hstu_attention_kernel_bench --cell CELL [forward|backward] [loaded]   timed
//   alone hstu_attention_kernel_bench --once CELL [forward|backward]   one launch
//
// CELL: d,N,batch,heads,biases[,shortest], as the members of Cell. loaded: timed on a card under
// load, not at rest
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "benchmarks/kernels/hstu_attention_check.cuh"
#include "benchmarks/kernels/hstu_attention_time.cuh"

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "--check";
  const std::string what = argc > 2 ? argv[2] : "";
  const bool forward = what != "backward", backward = what != "forward";
  using seqfuse::bench::Before;
  const Before before = std::string(argv[argc - 1]) == "loaded" ? Before::kLoad : Before::kRest;
  if (mode == "--time") {
    seqfuse::bench::time_all(before, forward, backward);
    return 0;
  }
  if (mode == "--cell" || mode == "--once") {
    seqfuse::bench::Cell cell{64, 1024, 32, 4, 0, 0, false};
    int biases = 0;
    if (argc > 2)
      std::sscanf(argv[2], "%d,%d,%d,%d,%d,%d", &cell.head_dim, &cell.length, &cell.batch,
                  &cell.heads, &biases, &cell.shortest);
    cell.biases = biases != 0;
    const std::string pass = argc > 3 ? argv[3] : "";
    if (mode == "--cell")
      seqfuse::bench::time_cell(cell, before, pass != "backward", pass != "forward");
    else
      seqfuse::bench::run_cell(cell, pass != "backward", pass != "forward");
    return 0;
  }
  const int failures = seqfuse::bench::check_all(backward);
  std::printf("%s: %d failures\n", failures ? "FAILED" : "passed", failures);
  return failures != 0;
}
