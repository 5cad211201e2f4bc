// Operators over the edges of a graph with PyTorch's operators, through dense matrices: in float64 the
// oracle, in other dtypes what plain PyTorch gives. Differentiable.
#pragma once

#include <torch/types.h>

#include <limits>
#include <vector>

namespace seqfuse::oracle {

// Edge e is (row[e], column[e]), int64 [E]; an edge may occur several times.
struct Edges {
  at::Tensor row, column;
  int64_t rows, columns;
};

// [rows, columns, H] with the sums of edges' values [E, H].
inline at::Tensor dense_of(const Edges& edges, const at::Tensor& values) {
  const at::Tensor zeros = at::zeros({edges.rows, edges.columns, values.size(1)}, values.options());
  return zeros.index_put({edges.row, edges.column}, values, /*accumulate=*/true);
}

// weights [E, H], x [columns, H, d] -> [rows, H, d].
inline at::Tensor spmm(const Edges& edges, const at::Tensor& weights, const at::Tensor& x) {
  return at::einsum("nmh,mhd->nhd", {dense_of(edges, weights), x});
}

// a [rows, H, d], b [columns, H, d] -> [E, H].
inline at::Tensor sddmm(const Edges& edges, const at::Tensor& a, const at::Tensor& b) {
  return at::einsum("nhd,mhd->nmh", {a, b}).index({edges.row, edges.column});
}

// left [rows, H], right [columns, H], x [columns, H, d], factors of dropout [E, H] -> [rows, H, d].
inline at::Tensor gat_attention(const Edges& edges, const at::Tensor& left, const at::Tensor& right,
                                const at::Tensor& x, double slope, const at::Tensor& factors) {
  const at::Tensor times =
      dense_of(edges, at::ones({edges.row.size(0), x.size(1)}, left.options()));
  const at::Tensor scores = at::leaky_relu(left.unsqueeze(1) + right.unsqueeze(0), slope);
  // Rows without edges get scores of their own, so that no gradient is NaN; no edge reads them.
  const at::Tensor none = times.sum(1, true) == 0;
  const at::Tensor lse =
      (scores + at::where(none, at::zeros_like(times), times.log())).logsumexp(1);
  const at::Tensor weights =
      (scores.index({edges.row, edges.column}) - lse.index({edges.row})).exp() * factors;
  return spmm(edges, weights, x);
}

}  // namespace seqfuse::oracle
