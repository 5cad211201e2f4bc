// The fifteen operators of a BERT layer as a graph: their names, kinds and what they read, for schemes
// (scheme.h) and for the programs of models/bert. Each has one output, so an operator also names a value.
//
//   index  operator         output, with R rows of H = heads d, and I inner columns
//    0     gemm0            [R, 3 H]: input W^T; q, k and v one after the other
//    1     bias0_split      [R, 3 H]: + bias; q, k and v are views of it, by head
//    2     qk               [groups, heads, length, length]: q k^T / sqrt(d)
//    3     mask             the same; -infinity where the mask forbids
//    4     softmax          the same; rows that see nothing are 0
//    5     pv               [groups, heads, length, d]
//    6     transpose        [R, H]
//    7     gemm1            [R, H]
//    8     bias1_residual   [R, H]: + bias, + input of the layer
//    9     layer_norm1      [R, H]
//   10     gemm2            [R, I]
//   11     bias2_gelu       [R, I]: act(+ bias)
//   12     gemm3            [R, H]
//   13     bias3_residual   [R, H]: + bias, + layer_norm1
//   14     layer_norm2      [R, H]: the output of the layer
#pragma once

#include <array>
#include <cstdint>

namespace seqfuse::fusion {

enum class Op : int8_t {
  gemm0,
  bias0_split,
  qk,
  mask,
  softmax,
  pv,
  transpose,
  gemm1,
  bias1_residual,
  layer_norm1,
  gemm2,
  bias2_gelu,
  gemm3,
  bias3_residual,
  layer_norm2,
};
inline constexpr int kOps = 15;

enum class OpKind : int8_t {
  gemm,          // rows times a weight
  batched_gemm,  // of two values, by head
  elementwise,   // with a bias or another value
  reduction,     // over the columns of a row
  layout,        // moves elements
};

// An operator reads the output of an earlier one, or the input of the layer.
inline constexpr int kLayerInput = -1, kNothing = -2;

struct Node {
  Op op;
  const char* name;
  OpKind kind;
  std::array<int, 2> reads;  // indices of operators, kLayerInput or kNothing
};

constexpr int index_of(Op op) {
  return static_cast<int>(op);
}

// In order of their indices.
inline constexpr std::array<Node, kOps> kGraph{{
    {Op::gemm0, "gemm0", OpKind::gemm, {kLayerInput, kNothing}},
    {Op::bias0_split, "bias0+split", OpKind::elementwise, {index_of(Op::gemm0), kNothing}},
    {Op::qk, "QK", OpKind::batched_gemm, {index_of(Op::bias0_split), kNothing}},
    {Op::mask, "mask", OpKind::elementwise, {index_of(Op::qk), kNothing}},
    {Op::softmax, "softmax", OpKind::reduction, {index_of(Op::mask), kNothing}},
    {Op::pv, "PV", OpKind::batched_gemm, {index_of(Op::softmax), index_of(Op::bias0_split)}},
    {Op::transpose, "transpose", OpKind::layout, {index_of(Op::pv), kNothing}},
    {Op::gemm1, "gemm1", OpKind::gemm, {index_of(Op::transpose), kNothing}},
    {Op::bias1_residual, "bias1+residual", OpKind::elementwise, {index_of(Op::gemm1), kLayerInput}},
    {Op::layer_norm1, "LN1", OpKind::reduction, {index_of(Op::bias1_residual), kNothing}},
    {Op::gemm2, "gemm2", OpKind::gemm, {index_of(Op::layer_norm1), kNothing}},
    {Op::bias2_gelu, "bias2+GELU", OpKind::elementwise, {index_of(Op::gemm2), kNothing}},
    {Op::gemm3, "gemm3", OpKind::gemm, {index_of(Op::bias2_gelu), kNothing}},
    {Op::bias3_residual,
     "bias3+residual",
     OpKind::elementwise,
     {index_of(Op::gemm3), index_of(Op::layer_norm1)}},
    {Op::layer_norm2, "LN2", OpKind::reduction, {index_of(Op::bias3_residual), kNothing}},
}};

}  // namespace seqfuse::fusion
