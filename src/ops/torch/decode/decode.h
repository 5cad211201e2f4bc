// The operators of a language model's decoding step on the CPU. Not in the dispatcher and without
// gradients: a step has no time for either.
#pragma once

#include <torch/types.h>

#include <vector>

#include "ops/kernels/attention/decode_attention.h"
#include "ops/kernels/gemm/decode_linear.h"

namespace seqfuse::ops {

// ---- linear layers (decode_linear.cpp)
struct DecodeLinearWeights {
  at::Tensor weight;  // [N, K], contiguous: float32, float16, bfloat16, or int8 with scales
  at::Tensor scales;  // float32 [N]; undefined but for int8
  at::Tensor bias;    // float32 [N]; undefined: none
};

// act(x W^T + bias) + residual: x [..., K] -> [..., N], in the dtype of x (float32, float16, bfloat16);
// residual like the result, or undefined. Computed in float32; the residual is added in the dtype of x.
// Up to kMaxDecodeRows rows of x: a row's bits do not depend on the others nor on the number of
// threads. More rows: at::linear on the weights, converted to float32 in blocks.
// Throws c10::ValueError for arguments that do not fit together.
at::Tensor decode_linear(const at::Tensor& x, const DecodeLinearWeights& weights,
                         LinearActivation activation = LinearActivation::none,
                         const at::Tensor& residual = {});

// int8 and scales [N] of a weight [N, K] of a floating dtype: each row in steps of its largest
// magnitude / 127, rounded to the nearest. weight ~ scales * int8, to half a step.
struct QuantizedRows {
  at::Tensor values, scales;
};
QuantizedRows quantize_rows(const at::Tensor& weight);

// ---- attention (decode_attention.cpp)
struct DecodeAngles {  // of each row: [rows, half]
  std::vector<float> cos, sin, start_cos, start_sin;
  int64_t half = 0;
};

// q, k, v [rows, heads, head_dim] of one dtype, elements of a head adjacent, all with the same strides;
// keys and values [rows, heads, slots, head_dim] of that dtype, contiguous, written at the rows' slots.
// Returns [rows, heads, head_dim] in that dtype. kernels/attention/decode_attention.h has the formula.
at::Tensor decode_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& keys, const at::Tensor& values,
                            const std::vector<DecodeAttentionRow>& rows,
                            const DecodeAngles& angles);

}  // namespace seqfuse::ops
