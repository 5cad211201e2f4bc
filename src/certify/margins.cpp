#include "certify/margins.h"

#include <limits>

#include "base/error.h"
#include "certify/backward.h"
#include "certify/forward.h"
#include "certify/node_bounds.h"

namespace seqfuse::certify {
using at::Tensor;
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A backward pass cannot tighten the interval of a function, which follows from that of its input, nor that of a
// matrix on the input, which is exact.
bool is_worth_a_pass(const Graph& graph, int index) {
  const Node& node = graph.node(index);
  if (!node.bounded) return false;
  switch (node.op) {
    case Op::linear:
      return graph.node(node.inputs[0]).op != Op::input;
    case Op::add:
    case Op::scores:
    case Op::context:
    case Op::product:
      return true;
    default:
      return false;
  }
}

// e[label] - e[other] for all others, then their negatives: [B, 2 C, 1, C].
Tensor margin_rows(int64_t classes, const Tensor& labels, const at::TensorOptions& options) {
  const Tensor all = at::eye(classes, options);
  const Tensor chosen = all.index_select(0, labels);
  const Tensor rows = chosen.unsqueeze(1) - all.unsqueeze(0);
  return at::cat({rows, -rows}, 1).unsqueeze(2);
}

// Lower bounds of rows · output by intervals alone, with the last matrix merged into the rows.
Tensor interval_bounds(const NodeBounds& bounds, const Tensor& rows) {
  const Graph& graph = bounds.graph();
  const int output = graph.output();
  const Node& last = graph.node(output);
  SEQFUSE_CHECK(last.op == Op::linear, "a graph must end with a matrix");
  const auto total = [&](const Tensor& x, const Tensor& y) {
    return at::sum(x.to(at::kDouble) * y.to(at::kDouble).unsqueeze(1), {2, 3});
  };
  const Tensor slopes = at::matmul(rows, last.linear->weight);
  const Constants& constants = bounds.constants(output);
  const Tensor constant = total(rows, constants.mid) - total(rows.abs(), constants.rad);
  const Split& x = bounds.split(last.inputs[0]);
  const Tensor size = slopes.abs();
  const Tensor value = constant + total(slopes, x.mid) - total(size, x.rad);
  const double lost = 2 * Rounding::of(at::kDouble).gamma(4 * slopes.size(-1) + 64);
  return value - (constant.abs() + total(size, x.mid.abs() + x.rad)) * lost;
}

void bound_nodes(NodeBounds& bounds, const MarginOptions& options) {
  const Graph& graph = bounds.graph();
  if (options.method == Method::crown_baf) return bound_forward(bounds, graph.output());
  for (int i = 0; i < graph.output(); ++i) {
    if (options.method == Method::ibp && graph.node(i).in_softmax) continue;
    bounds.set(i, bounds.by_intervals(i));
    if (options.method == Method::crown && is_worth_a_pass(graph, i)) {
      bounds.set(i, backward_interval(bounds, i, options.block_bytes));
    }
  }
}

}  // namespace

const char* name_of(Method method) {
  switch (method) {
    case Method::ibp:
      return "ibp";
    case Method::crown_baf:
      return "crown-baf";
    case Method::crown:
      return "crown";
  }
  return "";
}

Tensor lower_margins(const Graph& graph, const Ball& ball, const Tensor& labels,
                     const MarginOptions& options) {
  const at::NoGradGuard no_grad;
  const int64_t classes = graph.node(graph.output()).shape.back();
  NodeBounds bounds(graph, ball);
  bound_nodes(bounds, options);
  const Tensor rows = margin_rows(classes, labels, ball.center.options());
  Tensor found = interval_bounds(bounds, rows);
  if (options.method != Method::ibp) {
    found = at::fmax(found, lower_bounds(bounds, graph.output(), rows));
  }
  const Tensor usable = bounds.finite().unsqueeze(1).logical_and(at::isfinite(found));
  return at::where(usable, found, at::full_like(found, -kInfinity));
}

Margins margins(const Graph& graph, const Ball& ball, const std::vector<int64_t>& labels,
                const MarginOptions& options) {
  const Tensor on_device = at::tensor(labels, at::kLong).to(ball.center.device());
  const Tensor lower = lower_margins(graph, ball, on_device, options).cpu();
  return finished_margins(lower, graph, ball, labels, options);
}

Margins finished_margins(Tensor lower, const Graph& graph, const Ball& ball,
                         const std::vector<int64_t>& labels, const MarginOptions& options) {
  // Linear bounds overflow before intervals do.
  if (options.method != Method::ibp && !at::isfinite(lower).all().item<bool>()) {
    const Tensor on_device = at::tensor(labels, at::kLong).to(ball.center.device());
    lower =
        at::maximum(lower, lower_margins(graph, ball, on_device, {.method = Method::ibp}).cpu());
  }
  const int64_t classes = graph.node(graph.output()).shape.back();
  Margins result{lower.narrow(1, 0, classes).clone(), -lower.narrow(1, classes, classes)};
  for (size_t b = 0; b < labels.size(); ++b) {
    for (Tensor* column : {&result.lower, &result.upper}) {
      column->select(0, static_cast<int64_t>(b)).select(0, labels[b]).zero_();
    }
  }
  return result;
}

std::vector<double> smallest_margins(const Margins& margins, const std::vector<int64_t>& labels) {
  std::vector<double> smallest;
  for (size_t b = 0; b < labels.size(); ++b) {
    Tensor row = margins.lower[static_cast<int64_t>(b)].clone();
    row.select(0, labels[b]).fill_(kInfinity);
    smallest.push_back(row.min().item<double>());
  }
  return smallest;
}

}  // namespace seqfuse::certify
