// The scores of GAT attention.
#pragma once

#include "ops/kernels/graph/edge_ops.h"
#include "ops/kernels/graph/edge_sums.cuh"
#include "ops/kernels/step/make_dropout_mask.h"

namespace seqfuse::ops::cuda {

template <class T>
struct GatScore {
  static constexpr bool kSoftmax = true;
  using Row = float;  // left of the row

  const T *left, *right;
  int64_t heads;
  float slope;
  DropoutMask mask;

  __device__ Row row(int64_t row, int64_t head) const { return to_float(left[row * heads + head]); }
  __device__ float right_of(int64_t column, int64_t head) const {
    return to_float(right[column * heads + head]);
  }
  // Times log2(e), from left + right.
  __device__ float of_sum(float sum) const { return (sum > 0 ? sum : slope * sum) * kLog2e; }
  template <class Number>
  __device__ float operator()(Row left, int64_t column, const Number&, int64_t head) const {
    return of_sum(left + right_of(column, head));
  }
  template <class Number>
  __device__ float kept(const Number& number, int64_t head) const {
    return mask.drops_any() ? mask.factor(number() * heads + head) : 1;
  }
};

template <class T>
GatScore<T> gat_score(const GatParams& p) {
  return {.left = static_cast<const T*>(p.left),
          .right = static_cast<const T*>(p.right),
          .heads = p.heads,
          .slope = static_cast<float>(p.negative_slope),
          .mask = make_dropout_mask(p.dropout, p.seed)};
}

}  // namespace seqfuse::ops::cuda
