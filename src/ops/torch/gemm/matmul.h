// Matrix products on a GPU with fused epilogues.
//
//   d = a b (+ c) (+ bias)
//
// Row-major: a [M, K], b [K, N], c and d [M, N]. Any of them may be a view with another row stride,
// a and b also transposed views. bias [N] is added to each row.
#pragma once

#include <torch/types.h>

#include "ops/torch/checks.h"

namespace seqfuse::ops {

struct MatmulTerms {
  Tensor c;     // like d; must not alias d
  Tensor bias;  // [N], the dtype of d
};

// Uses cuBLASLt. a, b: float16 or bfloat16 (or float32); d: their dtype or float32. Sums in
// float32. Enqueues on the current stream. Throws c10::Error if cuBLASLt has no algorithm for it.
void matmul_into(const Tensor& d, const Tensor& a, const Tensor& b, const MatmulTerms& terms = {});

// z = a b + bias, y = silu(z): a, b and bias as above, all of one dtype; y and z [M, N], not the
// same memory. An undefined z is not kept; an undefined bias is absent. One kernel of our own if
// gemm_silu_cuda_takes (ops/kernels/gemm/gemm_silu.h): 16 bits; K, N and row strides multiples of
// 8; aligned to 16 bytes. Otherwise matmul_into, then SiLU. Throws c10::ValueError for mismatched
// arguments.
void matmul_silu_into(const Tensor& y, const Tensor& z, const Tensor& a, const Tensor& b,
                      const Tensor& bias);

}  // namespace seqfuse::ops
