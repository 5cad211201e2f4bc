// Intervals of every node of a graph over a ball, and what linear bounds are made of.
#pragma once

#include <torch/types.h>

#include <optional>
#include <vector>

#include "certify/ball.h"
#include "certify/graph.h"

namespace seqfuse::certify {

// For each element y of a node and some linear function of its inputs with the returned slopes:
// |y - (that function + mid)| <= rad, rounding included. [B, *shape].
struct Constants {
  at::Tensor mid, rad;
};

// mid, rad and magnitude of an interval; grown: rad plus what a product of mid with a matrix loses.
using Split = ops::bounds::TensorSplit;
// The slopes of a product by its factors, and its constants. Slopes are 0 where the interval of the product is
// narrower than the gap between its lines.
using ProductLines = ops::bounds::TensorProductLines;

// Nodes are bounded in order: set(i) after those before it. Tensors are [B, *shape].
class NodeBounds {
 public:
  NodeBounds(const Graph& graph, const Ball& ball);

  const Graph& graph() const { return graph_; }
  const Ball& ball() const { return ball_; }

  // From the intervals of its inputs, by the rules of interval arithmetic.
  Interval by_intervals(int node) const;
  void set(int node, Interval interval);
  bool has(int node) const { return of(node).interval.lo.defined(); }

  const Interval& interval(int node) const;
  const Split& split(int node) const;
  const at::Tensor& magnitude(int node) const { return split(node).magnitude; }
  // Slopes and offsets of a function node, on the interval of its input.
  const Lines& lines(int node) const;
  // linear, scores, context: y = slopes · inputs + mid ± rad, where the slopes are the matrix or the
  // middles of the other factor. Other nodes, without products: 0 ± what an addition loses.
  const Constants& constants(int node) const;
  const ProductLines& product_lines(int node) const;

  // bool [B]: whether all intervals so far, except within a softmax, are finite. NaN counts as not.
  at::Tensor finite() const;

 private:
  struct State {
    Interval interval;
    std::optional<Split> split;
    at::Tensor shift;
    std::optional<Lines> lines;
    std::optional<Constants> constants;
    std::optional<ProductLines> product_lines;
  };
  const State& of(int node) const { return states_[static_cast<size_t>(node)]; }
  State& of(int node) { return states_[static_cast<size_t>(node)]; }

  Interval of_input() const;
  Interval of_linear(int node) const;
  Interval of_product(int node) const;
  Interval of_matrix_product(int node) const;
  at::Tensor shift_of(int node) const;  // of an exp: [B, …, 1]; else undefined
  Constants make_constants(int node) const;

  const Graph& graph_;
  const Ball& ball_;
  mutable std::vector<State> states_;
};

}  // namespace seqfuse::certify
