// Sums of the columns of a matrix on a GPU.
#pragma once

#include "ops/torch/checks.h"

namespace seqfuse::ops {

// sums_j = sum_i x_ij. x: [R, C], float16, bfloat16 or float32, last stride 1; sums: [C], float32,
// contiguous. Enqueues on the current stream. Deterministic.
void column_sums_into(const Tensor& sums, const Tensor& x);

}  // namespace seqfuse::ops
