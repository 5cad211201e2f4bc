// Embedding lookup: out[i] = table[ids[i]]. Its gradient: kernels/row_sums.h.
//
// T: float32 or float64, CPU. Matrices are contiguous; count = 0 is allowed. out aliases no input.
// Determinism: the same bits for any number of threads.   Exactness: T0.
// Errors: the binding checks that every id lies in [0, num_rows), with first_outside_cpu.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace seqfuse::ops {

struct EmbeddingParams {
  const void* table;   // T [num_rows, dim]
  const int64_t* ids;  // [count]
  void* out;           // T [count, dim]
  int64_t count, dim;
};

void embedding_forward_cpu(const EmbeddingParams& params, DType dtype);

// The first i with ids[i] outside [0, num_rows), or -1. Id: int32_t or int64_t.
template <class Id>
int64_t first_outside_cpu(const Id* ids, int64_t count, int64_t num_rows);

}  // namespace seqfuse::ops
