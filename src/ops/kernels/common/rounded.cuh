// Rounding to a tensor's type in the middle of a calculation, where another program would have
// written the value to memory.
#pragma once

#include "ops/kernels/common/row_kernels.cuh"

namespace seqfuse::ops::cuda {

// The value of T nearest to v, as float.
template <class T>
__device__ float rounded(float v) {
  return to_float(from_float<T>(v));
}

}  // namespace seqfuse::ops::cuda
