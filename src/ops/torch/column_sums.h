// Sums of the columns of a matrix on a GPU.
#pragma once

#include "ops/torch/checks.h"

namespace seqfuse::ops {

// sums_j = sum_i x_ij. x: [R, C], float16, bfloat16 or float32, with adjacent elements in rows;
// sums: [C], float32 and contiguous. Enqueues on the current stream. The same bits from run to run.
void column_sums_into(const Tensor& sums, const Tensor& x);

}  // namespace seqfuse::ops
