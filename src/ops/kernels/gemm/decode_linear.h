// Linear layers of a decoding step: few rows, so that time is that of reading the weights.
//
//   y_mn = act(s_n sum_k x_mk w_nk + b_n) + r_mn
//
// W, the weights' type: float32, float16, bfloat16, or int8 with a scale s_n for each output. x, s, b,
// r, y and sums: float32. act: none, GELU with erf, or GELU with tanh.
//
// rows <= kMaxDecodeRows; in_features and out_features at least 1. Weights are read once for all rows.
// Aliasing: y may not overlap anything else.
// Determinism: every sum has one order of additions. A row's result is the same bits for any number
// of threads and beside any other rows, and for weights of any type that hold the same values.
// Exactness: T2, sums over k are re-associated.
#pragma once

#include <cstdint>

namespace seqfuse::ops {

inline constexpr int64_t kMaxDecodeRows = 16;

enum class WeightType : int32_t { f32, f16, bf16, i8 };

enum class LinearActivation : int32_t { none, gelu_erf, gelu_tanh };

struct DecodeLinearParams {
  const float* x;                   // [rows, in_features], contiguous
  const void* weight;               // W [out_features, in_features], contiguous
  const float* scales = nullptr;    // [out_features]; null: ones
  const float* bias = nullptr;      // [out_features]; null: zeros
  const float* residual = nullptr;  // [rows, out_features], contiguous; null: zeros
  float* y;                         // [rows, out_features], contiguous
  int64_t rows, in_features, out_features;
  LinearActivation activation = LinearActivation::none;
};

void decode_linear_cpu(const DecodeLinearParams& params, WeightType type);

}  // namespace seqfuse::ops
