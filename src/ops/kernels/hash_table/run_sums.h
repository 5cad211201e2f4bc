// Sums of a batch's gradients over equal ids, sorted by id: few ids may make up most of a batch.
//
//   sums[r] = sum of rows[order[i]] over i with rank[i] = r
//
// dim is at least 1, count below 2^31. Outputs alias no input. Memory: `partial`, which the caller
// allocates. Determinism: the same bits from run to run; a run of equal ids is added in pieces of
// kRunPiece, in order, then the pieces, in order. Errors: the binding checks the arguments.
#pragma once

#include <cstdint>

#include "ops/kernels/common/cuda_api.h"

namespace seqfuse::ops::hash_table {

inline constexpr int64_t kRunPiece = 128;  // positions of a warp

inline constexpr int64_t run_pieces(int64_t count) {
  return (count + kRunPiece - 1) / kRunPiece;
}

struct RunSums {
  const float* rows;     // [count, dim]
  const int64_t* order;  // [count]
  const int32_t* rank;   // [count], ascending from 0 without gaps
  int64_t count, dim;
  float* partial;  // [2 run_pieces(count), dim]
  float* sums;     // [ranks, dim]: each is written once
};

#ifdef SEQFUSE_CUDA_API
// Enqueues on the current device's stream; no allocation, no synchronisation.
cudaError_t sum_runs_cuda(const RunSums& params, cudaStream_t stream);
#endif

}  // namespace seqfuse::ops::hash_table
