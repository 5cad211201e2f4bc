#include "certify/node_bounds.h"

#include <utility>

#include "base/error.h"

namespace seqfuse::certify {
using at::Tensor;

Interval softmax_image(const Interval& scores) {
  const Rounding rounding = scores.rounding();
  const int64_t keys = scores.lo.size(-1);
  const Tensor top = scores.hi.amax(-1, /*keepdim=*/true);
  const auto power = [&](const Tensor& x, double direction) {
    const Tensor argument = x - top;
    const Tensor units = (16 + 4 * argument.abs()) * (direction * rounding.unit);
    return (at::exp(argument) * (1 + units)).clamp_min_(0);
  };
  const Tensor least = power(scores.lo, -1), most = power(scores.hi, 1) + rounding.tiny;
  const double more = 2 * rounding.gamma(keys + 8);
  const Tensor sum_most = most.sum(-1, true), sum_least = least.sum(-1, true);
  const Tensor others_most = (sum_most - most).clamp_min_(0) + sum_most * more;
  const Tensor others_least = (sum_least - least - sum_least * more).clamp_min_(0);
  const Interval result =
      widened({least / (least + others_most + rounding.tiny), most / (most + others_least)}, 8);
  return {result.lo.clamp(0, 1), result.hi.clamp(0, 1)};
}

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
  if (!state.split) state.split = certify::split(interval(node));
  return *state.split;
}

const Tensor& NodeBounds::magnitude(int node) const {
  State& state = states_[static_cast<size_t>(node)];
  if (!state.magnitude.defined()) state.magnitude = certify::magnitude(interval(node));
  return state.magnitude;
}

const Lines& NodeBounds::lines(int node) const {
  State& state = states_[static_cast<size_t>(node)];
  if (!state.lines) state.lines = make_lines(node);
  return *state.lines;
}

const Constants& NodeBounds::constants(int node) const {
  State& state = states_[static_cast<size_t>(node)];
  if (!state.constants) state.constants = make_constants(node);
  return *state.constants;
}

const ProductSlopes& NodeBounds::product_slopes(int node) const {
  State& state = states_[static_cast<size_t>(node)];
  if (!state.product_slopes) make_product(node);
  return *state.product_slopes;
}

Tensor NodeBounds::finite() const {
  Tensor result = at::ones({ball_.batch()}, ball_.center.options().dtype(at::kBool));
  for (int i = 0; i < graph_.size(); ++i) {
    if (!has(i) || graph_.node(i).in_softmax) continue;
    const Interval& x = interval(i);
    result.logical_and_(at::isfinite(x.lo).logical_and(at::isfinite(x.hi)).flatten(1).all(1));
  }
  return result;
}

Interval NodeBounds::by_intervals(int index) const {
  const Node& node = graph_.node(index);
  switch (node.op) {
    case Op::input:
      return of_input();
    case Op::linear:
      return of_linear(index);
    case Op::add: {
      const Interval &x = interval(node.inputs[0]), &y = interval(node.inputs[1]);
      return widened({x.lo + y.lo, x.hi + y.hi}, 2);
    }
    case Op::function: {
      const Interval& x = interval(node.inputs[0]);
      if (!node.shifted_row) return image(node.function, x);
      const Tensor shift = shift_of(index);
      return image(node.function, widened({x.lo - shift, x.hi - shift}, 1));
    }
    case Op::scores:
    case Op::context:
      return of_matrix_product(index);
    case Op::product:
      return of_product(index);
    case Op::first_row: {
      const Interval& x = interval(node.inputs[0]);
      return {x.lo.narrow(-2, 0, 1), x.hi.narrow(-2, 0, 1)};
    }
  }
  throw_error("an unknown operator");
}

Interval NodeBounds::of_input() const {
  Tensor rad = ball_.center.abs() * (4 * Rounding::of(ball_.center.scalar_type()).unit);
  rad.index_add_(1, ball_.position_tensor(),
                 ball_.eps_tensor(3, rad.scalar_type())
                     .expand({-1, static_cast<int64_t>(ball_.positions.size()), ball_.width()}));
  return around(ball_.center, rad);
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
    rad = at::linear(x.rad + x.mid.abs() * gamma, linear.magnitude);
  }
  rad = (rad + linear.bias.abs() * gamma) * (1 + 2 * gamma);
  Interval result = around(mid, rad);
  if (node.at_least > 0) result.lo = result.lo.clamp_min(node.at_least * (1 - 4 * rounding.unit));
  return result;
}

Interval NodeBounds::of_product(int index) const {
  const Node& node = graph_.node(index);
  if (node.softmax_of >= 0) return softmax_image(interval(node.softmax_of));
  const Interval &x = interval(node.inputs[0]), &y = interval(node.inputs[1]);
  const Tensor ends[] = {x.lo * y.lo, x.lo * y.hi, x.hi * y.lo, x.hi * y.hi};
  Interval result =
      widened({at::minimum(at::minimum(ends[0], ends[1]), at::minimum(ends[2], ends[3])),
               at::maximum(at::maximum(ends[0], ends[1]), at::maximum(ends[2], ends[3]))},
              2);
  if (node.limit.defined()) {
    result = {at::maximum(result.lo, -node.limit), at::minimum(result.hi, node.limit)};
  }
  if (!node.bias.defined()) return result;
  const Tensor more = node.bias.abs() * (4 * result.rounding().unit);
  return widened({result.lo + (node.bias - more), result.hi + (node.bias + more)}, 4);
}

// |x y - mx my| <= |mx| ry + rx (|my| + ry), where x and y are within rx and ry of mx and my.
Interval NodeBounds::of_matrix_product(int index) const {
  const Node& node = graph_.node(index);
  Split x = split(node.inputs[0]), y = split(node.inputs[1]);
  const bool scores = node.op == Op::scores;
  if (scores) x = {by_head(x.mid, node.heads), by_head(x.rad, node.heads)};
  y = {by_head(y.mid, node.heads), by_head(y.rad, node.heads)};
  if (scores) y = {y.mid.mT(), y.rad.mT()};
  const double gamma = Rounding::of(x.mid.scalar_type()).gamma(2 * x.mid.size(-1) + 8);
  const Tensor mid = at::matmul(x.mid, y.mid), size = y.mid.abs();
  const Tensor rad = at::matmul(at::cat({x.mid.abs(), x.rad}, -1),
                                at::cat({y.rad + size * gamma, size + y.rad}, -2));
  const Interval result = around(mid * node.scale, rad * (node.scale * (1 + 2 * gamma)));
  if (scores) return result;
  return {joined_heads(result.lo), joined_heads(result.hi)};
}

// So that a row's sum of exp is at least about 1.
Tensor NodeBounds::shift_of(int index) const {
  State& state = states_[static_cast<size_t>(index)];
  if (!state.shift.defined()) {
    state.shift = interval(graph_.node(index).inputs[0]).lo.amax(-1, /*keepdim=*/true);
  }
  return state.shift;
}

Lines NodeBounds::make_lines(int index) const {
  const Node& node = graph_.node(index);
  const Interval& x = interval(node.inputs[0]);
  if (!node.shifted_row) return certify::lines(node.function, x);
  const Tensor shift = shift_of(index);
  Lines result = certify::lines(node.function, widened({x.lo - shift, x.hi - shift}, 1));
  const auto moved = [&](const Tensor& slope, const Tensor& offset, double direction) {
    const Tensor step = slope * shift;
    return offset - step + (offset.abs() + step.abs()) * (direction * 4 * x.rounding().unit);
  };
  result.lower_offset = moved(result.lower_slope, result.lower_offset, -1);
  result.upper_offset = moved(result.upper_slope, result.upper_offset, 1);
  return result;
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
      Tensor parts[] = {
          of_heads(0, x.mid), of_heads(0, x.rad), of_heads(0, magnitude(node.inputs[0])),
          of_heads(1, y.mid), of_heads(1, y.rad), of_heads(1, magnitude(node.inputs[1]))};
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
    case Op::product:
      make_product(index);
      return *states_[static_cast<size_t>(index)].constants;
    default:
      return {at::zeros_like(magnitude(index)), magnitude(index) * (8 * rounding.unit)};
  }
}

void NodeBounds::make_product(int index) const {
  const Node& node = graph_.node(index);
  const Rounding rounding = Rounding::of(ball_.center.scalar_type());
  const Split &x = split(node.inputs[0]), &y = split(node.inputs[1]), &own = split(index);
  const double gamma = rounding.gamma(node.shape.back() + 16);
  Tensor mid = x.mid * y.mid * -1;
  Tensor rad = x.rad * y.rad * (1 + 8 * rounding.unit) +
               magnitude(node.inputs[0]) * magnitude(node.inputs[1]) * (4 * gamma) + rounding.tiny;
  if (node.bias.defined()) {
    mid = mid + node.bias;
    rad = rad + node.bias.abs() * (8 * rounding.unit);
  }
  const Tensor constant = own.rad < rad;
  const auto unless_constant = [&](const Tensor& slope) {
    return slope.expand_as(constant).masked_fill(constant, 0);
  };
  State& state = states_[static_cast<size_t>(index)];
  state.product_slopes = {unless_constant(y.mid), unless_constant(x.mid)};
  state.constants = {at::where(constant, own.mid, mid), at::where(constant, own.rad, rad)};
}

}  // namespace seqfuse::certify
