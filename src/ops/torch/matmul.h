// Matrix products on a GPU with what is done to their results in the same kernel.
//
//   d = a b (+ c) (+ bias)
//
// Row-major: a [M, K], b [K, N], c and d [M, N]; any of them may be a view with another row stride,
// a and b also transposed views. bias [N] is added to each row.
#pragma once

#include <torch/types.h>

#include "ops/torch/checks.h"

namespace seqfuse::ops {

struct MatmulTerms {
  Tensor c;     // like d; not the same memory
  Tensor bias;  // [N], the dtype of d
};

// By cuBLASLt. a, b: float16 or bfloat16 (or float32); d: their dtype or float32. Sums in float32.
// Enqueues on the current stream. Throws c10::Error where cuBLASLt has no way to do it.
void matmul_into(const Tensor& d, const Tensor& a, const Tensor& b, const MatmulTerms& terms = {});

// z = a b + bias, y = silu(z): a, b and bias as above, all of one dtype; y and z [M, N], neither
// the same memory. z and bias may be undefined: not kept, none. One kernel of our own where
// gemm_silu_cuda_takes (ops/kernels/gemm/gemm_silu.h): 16 bits, K, N and row strides multiples of 8,
// aligned to 16 bytes; else matmul_into and SiLU of its result. Throws c10::ValueError for
// arguments that do not fit together.
void matmul_silu_into(const Tensor& y, const Tensor& z, const Tensor& a, const Tensor& b,
                      const Tensor& bias);

}  // namespace seqfuse::ops
