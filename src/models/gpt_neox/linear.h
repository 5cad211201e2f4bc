// A linear layer of a language model, with its weights as they are held.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "ops/kernels/gemm/decode_linear.h"

namespace seqfuse::models::gpt_neox {

using ops::LinearActivation;

struct Linear {
  at::Tensor
      weight;  // [N, K]: the model's dtype or int8; on the CPU also float32, float16, bfloat16
  at::Tensor scales;  // of int8: float32 [N]
  at::Tensor bias;    // [N] or undefined; float32 on the CPU unless the model is float64

  // act(x W^T + bias) + residual: x [..., K] -> [..., N] in the dtype of x; residual like the result,
  // or undefined. On the CPU by ops::decode_linear, which sums in float32; float64 and GPUs: by ATen,
  // with each step rounded to the dtype.
  at::Tensor operator()(const at::Tensor& x, LinearActivation activation = LinearActivation::none,
                        const at::Tensor& residual = {}) const;

  int64_t bytes() const;
};

}  // namespace seqfuse::models::gpt_neox
