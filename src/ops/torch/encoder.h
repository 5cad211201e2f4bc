// The operators of an encoder layer besides products, without the dispatcher and without gradients: a
// short batch has no time for either. Arguments are trusted: the callers are models, and the operators
// torch.ops.seqfuse.*_forward of encoder.cpp, which check them.
//
// T: float32 and float64 on the CPU; float16 and bfloat16 on CUDA, and float32 but for attention.
// Matrices are contiguous, vectors [D] too.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "ops/kernels/gemm/bias_activation.h"
#include "ops/torch/attention/masked_attention.h"

namespace seqfuse::ops {

// y = act(x + bias): x and y [rows, D], which may be one tensor.
void bias_activation_into(const at::Tensor& y, const at::Tensor& x, const at::Tensor& bias,
                          Activation activation);

// layer_norm(x + a + b) weight + beta: x and b [rows, D], a [rows, D] or a vector [D]; the sum is
// rounded to T after each addition. One kernel; the sum is not written.
at::Tensor add_norm(const at::Tensor& x, const at::Tensor& a, const at::Tensor& b,
                    const at::Tensor& weight, const at::Tensor& beta, double eps);

// Softmax attention of rows. qkv: [B * n, 3 * heads * d]; row b * n + i is token i of sequence b: q,
// then k, then v, each by head. The mask has n queries and n keys, and 1 or B sequences. Returns
// [B * n, heads * d], for the product that follows: nothing is transposed. CUDA: d is a multiple of 8,
// at most 128.
at::Tensor rows_attention(const at::Tensor& qkv, int64_t heads, const BlockMaskTensors& mask,
                          double scale);

}  // namespace seqfuse::ops
