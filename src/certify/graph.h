// The function whose outputs are bounded: a list of operators, each of which reads earlier ones.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "certify/function.h"

namespace seqfuse::certify {

// x W^T + b over the last dimension. Weights are rounded once from float64.
struct Linear {
  at::Tensor weight, magnitude, bias;  // [out, in], |weight|, [out]

  // weight, bias: float64. The result has the dtype and device of `options`.
  Linear(const at::Tensor& weight, const at::Tensor& bias, const at::TensorOptions& options);
};
using SharedLinear = std::shared_ptr<const Linear>;

enum class Op {
  input,      // [N, H]
  linear,     // last dimension by a matrix
  add,        // of two of one shape
  function,   // of each element
  scores,     // [N', H], [N, H] -> [heads, N', N]: scale q k^T by head
  context,    // [heads, N', N], [N, H] -> [N', H]: p v by head
  product,    // of each element; the second may have a last dimension of 1
  first_row,  // [N, H] -> [1, H]
};

struct Node {
  Op op;
  std::vector<int> inputs;
  std::vector<int64_t> shape;  // without the batch
  SharedLinear linear;
  Function function = Function::relu;
  int64_t heads = 0;
  double scale = 1;
  at::Tensor bias;           // product: added to it, [H]; may be undefined
  at::Tensor limit;          // product: a bound of |x y| that always holds, [H]; may be undefined
  double at_least = 0;       // linear, where positive: a lower bound that always holds
  int softmax_of = -1;       // product: the scores of which it is the softmax
  bool shifted_row = false;  // exp: of x minus a number for each row, which is free
  bool in_softmax = false;   // a part of a softmax
  bool bounded = false;      // an operator that is not linear reads it

  int64_t size() const;  // elements
};

class Graph {
 public:
  int input(int64_t rows, int64_t width);
  int linear(int x, SharedLinear linear, double at_least = 0);
  int add(int x, int y);
  int function(int x, Function function);
  int scores(int q, int k, int64_t heads, double scale);
  // Over the last dimension: exp, sum, reciprocal, product. No result depends on the shift of rows.
  int softmax(int scores);
  int context(int p, int v);
  int product(int x, int y, at::Tensor bias = {}, at::Tensor limit = {});
  int first_row(int x);

  const Node& node(int index) const { return nodes_[static_cast<size_t>(index)]; }
  int size() const { return static_cast<int>(nodes_.size()); }
  int output() const { return size() - 1; }
  // How many nodes read it.
  int readers(int index) const { return readers_[static_cast<size_t>(index)]; }

  // The output at x [S, N, H], in its dtype, which must be that of the weights; has gradients.
  at::Tensor evaluate(const at::Tensor& x) const;

 private:
  int append(Node node);
  void bound(int index) { nodes_[static_cast<size_t>(index)].bounded = true; }

  std::vector<Node> nodes_;
  std::vector<int> readers_;
};

// [..., N, H] -> [..., heads, N, H / heads], a view, and back.
at::Tensor by_head(const at::Tensor& x, int64_t heads);
at::Tensor joined_heads(const at::Tensor& x);

}  // namespace seqfuse::certify
