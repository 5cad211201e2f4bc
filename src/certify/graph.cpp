#include "certify/graph.h"

#include <functional>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace seqfuse::certify {
using at::Tensor;

Linear::Linear(const Tensor& of_weight, const Tensor& of_bias, const at::TensorOptions& options)
    : weight(of_weight.to(options).contiguous()),
      magnitude(weight.abs()),
      bias(of_bias.to(options).contiguous()) {}

int64_t Node::size() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

Tensor by_head(const Tensor& x, int64_t heads) {
  return x.unflatten(-1, {heads, x.size(-1) / heads}).transpose(-3, -2);
}

Tensor joined_heads(const Tensor& x) {
  return x.transpose(-3, -2).flatten(-2);
}

int Graph::append(Node node) {
  for (const int read : node.inputs) {
    SEQFUSE_CHECK(read >= 0 && read < size(), "an operator reads {} of {}", read, size());
    ++readers_[static_cast<size_t>(read)];
  }
  nodes_.push_back(std::move(node));
  readers_.push_back(0);
  return output();
}

int Graph::input(int64_t rows, int64_t width) {
  return append({.op = Op::input, .inputs = {}, .shape = {rows, width}});
}

int Graph::linear(int x, SharedLinear linear, double at_least) {
  std::vector<int64_t> shape = node(x).shape;
  SEQFUSE_CHECK(shape.back() == linear->weight.size(1), "a matrix of {} columns for {} values",
                linear->weight.size(1), shape.back());
  shape.back() = linear->weight.size(0);
  return append({.op = Op::linear,
                 .inputs = {x},
                 .shape = shape,
                 .linear = std::move(linear),
                 .at_least = at_least});
}

int Graph::add(int x, int y) {
  SEQFUSE_CHECK(node(x).shape == node(y).shape, "a sum of different shapes");
  return append({.op = Op::add, .inputs = {x, y}, .shape = node(x).shape});
}

int Graph::function(int x, Function function) {
  bound(x);
  return append({.op = Op::function, .inputs = {x}, .shape = node(x).shape, .function = function});
}

int Graph::scores(int q, int k, int64_t heads, double scale) {
  bound(q);
  bound(k);
  return append({.op = Op::scores,
                 .inputs = {q, k},
                 .shape = {heads, node(q).shape[0], node(k).shape[0]},
                 .heads = heads,
                 .scale = scale});
}

int Graph::softmax(int scores) {
  const int64_t keys = node(scores).shape.back();
  const at::TensorOptions options = [&] {  // those of the first weights before
    for (const Node& node : nodes_) {
      if (node.linear) return node.linear->weight.options();
    }
    throw_error("a softmax without weights before it");
  }();
  const at::TensorOptions wide = options.dtype(at::kDouble);
  const auto ones =
      std::make_shared<Linear>(at::ones({1, keys}, wide), at::zeros({1}, wide), options);
  const int powers = function(scores, Function::exp);
  nodes_.back().shifted_row = true;
  nodes_.back().in_softmax = true;
  const int sum = linear(powers, ones, /*at_least=*/1);  // one score is at least the shift
  nodes_.back().in_softmax = true;
  const int inverse = function(sum, Function::reciprocal);
  nodes_.back().in_softmax = true;
  const int result = product(powers, inverse);
  nodes_.back().softmax_of = scores;
  return result;
}

int Graph::context(int p, int v) {
  bound(p);
  bound(v);
  return append({.op = Op::context,
                 .inputs = {p, v},
                 .shape = {node(p).shape[1], node(v).shape[1]},
                 .heads = node(p).shape[0]});
}

int Graph::product(int x, int y, Tensor bias, Tensor limit) {
  bound(x);
  bound(y);
  return append({.op = Op::product,
                 .inputs = {x, y},
                 .shape = node(x).shape,
                 .bias = std::move(bias),
                 .limit = std::move(limit)});
}

int Graph::first_row(int x) {
  return append({.op = Op::first_row, .inputs = {x}, .shape = {1, node(x).shape[1]}});
}

Tensor Graph::evaluate(const Tensor& x) const {
  std::vector<Tensor> values(nodes_.size());
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    const auto read = [&](size_t input) { return values[static_cast<size_t>(node.inputs[input])]; };
    Tensor& y = values[i];
    switch (node.op) {
      case Op::input:
        y = x;
        break;
      case Op::linear:
        y = at::linear(read(0), node.linear->weight, node.linear->bias);
        break;
      case Op::add:
        y = read(0) + read(1);
        break;
      case Op::function:
        y = value(node.function,
                  node.shifted_row ? read(0) - read(0).detach().amax(-1, true) : read(0));
        break;
      case Op::scores:
        y = at::matmul(by_head(read(0), node.heads), by_head(read(1), node.heads).mT()) *
            node.scale;
        break;
      case Op::context:
        y = joined_heads(at::matmul(read(0), by_head(read(1), node.heads)));
        break;
      case Op::product:
        y = read(0) * read(1);
        if (node.bias.defined()) y = y + node.bias;
        break;
      case Op::first_row:
        y = read(0).narrow(-2, 0, 1);
        break;
    }
  }
  return values.back();
}

}  // namespace seqfuse::certify
