#include "certify/node_bounds.h"

#include <utility>

#include "base/error.h"

namespace seqfuse::certify {
using at::Tensor;
namespace rules = ops::bounds;

NodeBounds::NodeBounds(const Graph& graph, const Ball& ball)
    : graph_(graph), ball_(ball), states_(static_cast<size_t>(graph.size())) {}

void NodeBounds::set(int node, Interval interval) {
  of(node) = {};
  of(node).interval = std::move(interval);
}

const Interval& NodeBounds::interval(int node) const {
  SEQFUSE_CHECK(has(node), "node {} has no bounds yet", node);
  return of(node).interval;
}

const Split& NodeBounds::split(int node) const {
  State& state = states_[static_cast<size_t>(node)];
  if (!state.split) {
    const Interval& x = interval(node);
    state.split = rules::split(x, rounding_of(x).gamma(x.lo.size(-1) + 8));
  }
  return *state.split;
}

const Lines& NodeBounds::lines(int index) const {
  State& state = states_[static_cast<size_t>(index)];
  if (!state.lines) {
    const Node& node = graph_.node(index);
    state.lines = rules::lines(node.function, interval(node.inputs[0]), shift_of(index));
  }
  return *state.lines;
}

const Constants& NodeBounds::constants(int node) const {
  State& state = states_[static_cast<size_t>(node)];
  if (!state.constants) state.constants = make_constants(node);
  return *state.constants;
}

const ProductLines& NodeBounds::product_lines(int index) const {
  State& state = states_[static_cast<size_t>(index)];
  if (!state.product_lines) {
    const Node& node = graph_.node(index);
    const Interval& own = interval(index);
    state.product_lines =
        rules::product_lines(interval(node.inputs[0]), interval(node.inputs[1]), own, node.bias,
                             rounding_of(own).gamma(node.shape.back() + 16));
  }
  return *state.product_lines;
}

Tensor NodeBounds::finite() const {
  const Tensor bad = at::zeros({ball_.batch()}, ball_.center.options().dtype(at::kByte));
  for (int i = 0; i < graph_.size(); ++i) {
    if (has(i) && !graph_.node(i).in_softmax) rules::mark_infinite(interval(i), bad);
  }
  return bad == 0;
}

Interval NodeBounds::by_intervals(int index) const {
  const Node& node = graph_.node(index);
  switch (node.op) {
    case Op::input:
      return of_input();
    case Op::linear:
      return of_linear(index);
    case Op::add:
      return rules::sum(interval(node.inputs[0]), interval(node.inputs[1]));
    case Op::function:
      return rules::image(node.function, interval(node.inputs[0]), shift_of(index));
    case Op::scores:
    case Op::context:
      return of_matrix_product(index);
    case Op::product:
      return of_product(index);
    case Op::first_row: {
      const Interval& x = interval(node.inputs[0]);
      const auto first = [](const Tensor& t) { return t.narrow(-2, 0, 1).clone(); };
      return {first(x.lo), first(x.hi)};
    }
  }
  throw_error("an unknown operator");
}

Interval NodeBounds::of_input() const {
  Tensor rad = ball_.center.abs() * (4 * Rounding::of(ball_.center.scalar_type()).unit);
  rad.index_add_(1, ball_.position_tensor(),
                 ball_.eps_tensor(3, rad.scalar_type())
                     .expand({-1, static_cast<int64_t>(ball_.positions.size()), ball_.width()}));
  return rules::around(ball_.center, rad, {}, {});
}

Interval NodeBounds::of_linear(int index) const {
  const Node& node = graph_.node(index);
  const int from = node.inputs[0];
  const Linear& linear = *node.linear;
  const Rounding rounding = Rounding::of(linear.weight.scalar_type());
  const double gamma = rounding.gamma(linear.weight.size(1) + 8);
  Tensor mid, rad;
  if (graph_.node(from).op == Op::input) {  // exact for the norm
    const Tensor& center = ball_.center;
    mid = at::linear(center, linear.weight, linear.bias);
    rad = at::linear(center.abs() * gamma, linear.magnitude);
    const Tensor grown = dual_norm(linear.weight, 1, ball_.norm) * (1 + 4 * rounding.unit);
    rad.index_add_(1, ball_.position_tensor(),
                   (ball_.eps_tensor(3, rad.scalar_type()) * grown)
                       .expand({-1, static_cast<int64_t>(ball_.positions.size()), -1}));
  } else {
    const Split& x = split(from);
    mid = at::linear(x.mid, linear.weight, linear.bias);
    rad = at::linear(x.grown, linear.magnitude);
  }
  return rules::around(mid, rad, linear.bias,
                       {.gamma = gamma,
                        .rad_scale = 1 + 2 * gamma,
                        .at_least = node.at_least * (1 - 4 * rounding.unit)});
}

Interval NodeBounds::of_product(int index) const {
  const Node& node = graph_.node(index);
  if (node.softmax_of >= 0) {
    const Interval& scores = interval(node.softmax_of);
    return rules::softmax_image(scores, 2 * rounding_of(scores).gamma(scores.lo.size(-1) + 8));
  }
  return rules::product(interval(node.inputs[0]), interval(node.inputs[1]), node.limit, node.bias);
}

// |x y - mx my| <= |mx| ry + rx (|my| + ry), where x and y are within rx and ry of mx and my.
Interval NodeBounds::of_matrix_product(int index) const {
  const Node& node = graph_.node(index);
  const Split &sx = split(node.inputs[0]), &sy = split(node.inputs[1]);
  const bool scores = node.op == Op::scores;
  const auto left = [&](const Tensor& t) { return scores ? by_head(t, node.heads) : t; };
  const auto right = [&](const Tensor& t) {
    const Tensor heads = by_head(t, node.heads);
    return scores ? heads.mT() : heads;
  };
  const double gamma = Rounding::of(sx.mid.scalar_type()).gamma(2 * left(sx.mid).size(-1) + 8);
  const Tensor mid = at::matmul(left(sx.mid), right(sy.mid)), size = sy.mid.abs();
  const Tensor rad = at::matmul(at::cat({left(sx.mid.abs()), left(sx.rad)}, -1),
                                at::cat({right(sy.rad + size * gamma), right(size + sy.rad)}, -2));
  const Interval result =
      rules::around(mid, rad, {}, {.scale = node.scale, .rad_scale = node.scale * (1 + 2 * gamma)});
  if (scores) return result;
  return {joined_heads(result.lo), joined_heads(result.hi)};
}

// A row's sum of exp is then at least about 1.
Tensor NodeBounds::shift_of(int index) const {
  const Node& node = graph_.node(index);
  if (!node.shifted_row) return {};
  State& state = states_[static_cast<size_t>(index)];
  if (!state.shift.defined()) {
    state.shift = interval(node.inputs[0]).lo.amax(-1, /*keepdim=*/true);
  }
  return state.shift;
}

Constants NodeBounds::make_constants(int index) const {
  const Node& node = graph_.node(index);
  const Rounding rounding = Rounding::of(ball_.center.scalar_type());
  const auto of_heads = [&](int input, const Tensor& x) {
    return node.op == Op::scores || input == 1 ? by_head(x, node.heads) : x;
  };
  switch (node.op) {
    case Op::linear: {
      const Linear& linear = *node.linear;
      const double gamma = rounding.gamma(linear.weight.size(0) + linear.weight.size(1) + 16);
      const Tensor size =
          at::linear(magnitude(node.inputs[0]), linear.magnitude, linear.bias.abs());
      return {linear.bias.expand_as(size), size * gamma + rounding.tiny};
    }
    case Op::scores:
    case Op::context: {
      const Split &x = split(node.inputs[0]), &y = split(node.inputs[1]);
      Tensor parts[] = {of_heads(0, x.mid), of_heads(0, x.rad), of_heads(0, x.magnitude),
                        of_heads(1, y.mid), of_heads(1, y.rad), of_heads(1, y.magnitude)};
      if (node.op == Op::scores) {
        for (int i = 3; i < 6; ++i) parts[i] = parts[i].mT();
      }
      // A factor of each product of the backward pass, which sums over queries, keys or features.
      const double gamma =
          rounding.gamma(node.shape.back() + parts[0].size(-2) + parts[0].size(-1) + 32);
      Tensor mid = at::matmul(parts[0], parts[3]) * -node.scale;
      Tensor rad = (at::matmul(parts[1], parts[4]) * (1 + gamma) +
                    at::matmul(parts[2], parts[5]) * (4 * gamma)) *
                       node.scale +
                   rounding.tiny;
      if (node.op == Op::context) return {joined_heads(mid), joined_heads(rad)};
      return {mid, rad};
    }
    default:
      return {at::zeros_like(magnitude(index)), magnitude(index) * (8 * rounding.unit)};
  }
}

}  // namespace seqfuse::certify
