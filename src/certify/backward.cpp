#include "certify/backward.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace seqfuse::certify {
using at::Tensor;
namespace {
class BackwardPass {
 public:
  BackwardPass(const NodeBounds& bounds, int node, Tensor rows)
      : bounds_(bounds), graph_(bounds.graph()), rows_(static_cast<size_t>(node) + 1) {
    const int64_t batch = bounds.ball().batch();
    reach_ = at::zeros({batch, rows.size(1)}, rows.options().dtype(at::kDouble));
    std::vector<int64_t> shape = rows.sizes().vec();
    shape[0] = batch;
    rows_.back() = rows.expand(shape);
  }

  Tensor run() {
    for (int i = static_cast<int>(rows_.size()) - 1; i >= 0; --i) {
      const Tensor rows = std::exchange(rows_[static_cast<size_t>(i)], Tensor());
      if (rows.defined()) step(i, rows);
    }
    const Tensor parts = at::cat(constants_);  // [parts, 2, B, M]
    const Tensor values = parts.select(1, 0), lost = parts.select(1, 1).sum(0);
    const Tensor size = values.abs().sum(0) + lost + reach_;
    // Covers the error of summing the parts in double, and all products that underflow.
    const double units = static_cast<double>(parts.size(0) + 16) * 0x1p-52;
    const double underflow = 1e5 * Rounding::of(bounds_.ball().center.scalar_type()).tiny;
    return values.sum(0) - lost - reach_ - size * units - underflow;
  }

 private:
  // Adds sum(rows * mid) - sum(|rows| * rad), downwards.
  void add_constants(const Tensor& rows, const Tensor& mid, const Tensor& rad) {
    constants_.push_back(ops::bounds::rows_to_constants(rows, mid, rad).constants);
  }

  void pass(int to, Tensor rows) {
    Tensor& kept = rows_[static_cast<size_t>(to)];
    kept = kept.defined() ? kept + rows : std::move(rows);
  }

  void step(int i, const Tensor& rows) {
    const Node& node = graph_.node(i);
    switch (node.op) {
      case Op::input:
        return at_input(rows);
      case Op::linear:
        add_constants(rows, bounds_.constants(i).mid, bounds_.constants(i).rad);
        return pass(node.inputs[0], at::matmul(rows, node.linear->weight));
      case Op::add:
        add_rounding(i, rows);
        pass(node.inputs[0], rows);
        return pass(node.inputs[1], rows);
      case Op::function:
        return through_function(i, rows);
      case Op::scores:
        return through_scores(i, rows);
      case Op::context:
        return through_context(i, rows);
      case Op::product:
        return through_product(i, rows);
      case Op::first_row: {
        add_rounding(i, rows);
        Tensor all = at::zeros(
            {rows.size(0), rows.size(1), graph_.node(node.inputs[0]).shape[0], rows.size(3)},
            rows.options());
        all.narrow(2, 0, 1).copy_(rows);
        return pass(node.inputs[0], all);
      }
    }
  }

  // Covers the error of summing the rows of several readers.
  void add_rounding(int i, const Tensor& rows) {
    if (graph_.readers(i) > 1) {
      add_constants(rows, bounds_.constants(i).mid, bounds_.constants(i).rad);
    }
  }

  void at_input(const Tensor& rows) {
    const Ball& ball = bounds_.ball();
    const double unit = Rounding::of(rows.scalar_type()).unit;
    add_constants(rows, ball.center, bounds_.magnitude(0) * (16 * unit));
    const Tensor perturbed = rows.index_select(2, ball.position_tensor()).to(at::kDouble);
    const Tensor reach =
        dual_norm(perturbed, 3, ball.norm).sum(2) * ball.eps_tensor(2, at::kDouble) * (1 + 1e-12);
    reach_ += reach;
  }

  // Rows above 0 take the lower line, rows below 0 the upper one.
  void through_function(int i, const Tensor& rows) {
    const int from = graph_.node(i).inputs[0];
    const ops::bounds::PassedRows passed = ops::bounds::rows_through_function(
        rows, bounds_.lines(i), bounds_.magnitude(from), bounds_.magnitude(i));
    constants_.push_back(passed.constants);
    pass(from, passed.first);
  }

  void through_scores(int i, const Tensor& rows) {
    const Node& node = graph_.node(i);
    add_constants(rows, bounds_.constants(i).mid, bounds_.constants(i).rad);
    const Tensor q = by_head(bounds_.split(node.inputs[0]).mid, node.heads);
    const Tensor k = by_head(bounds_.split(node.inputs[1]).mid, node.heads);
    const Tensor heads_first = rows.transpose(1, 2);  // [B, heads, M, N', N]
    pass(node.inputs[0], of_heads(product_by_head(heads_first, k * node.scale)));
    pass(node.inputs[1], of_heads(product_by_head(heads_first.mT(), q * node.scale)));
  }

  void through_context(int i, const Tensor& rows) {
    const Node& node = graph_.node(i);
    add_constants(rows, bounds_.constants(i).mid, bounds_.constants(i).rad);
    const Tensor& p = bounds_.split(node.inputs[0]).mid;  // [B, heads, N', N]
    const Tensor v = by_head(bounds_.split(node.inputs[1]).mid, node.heads);
    const Tensor heads_first = by_head(rows, node.heads).transpose(1, 2);  // [B, heads, M, N', d]
    pass(node.inputs[0], product_by_head(heads_first, v.mT()).transpose(1, 2));
    pass(node.inputs[1], of_heads(product_by_head(heads_first.mT(), p).mT()));
  }

  // x [B, heads, M, a, b] · y [B, heads, b, c], with the rows of all M in one product.
  static Tensor product_by_head(const Tensor& x, const Tensor& y) {
    return at::matmul(x.flatten(2, 3), y).unflatten(2, {x.size(2), x.size(3)});
  }

  // [B, heads, M, N, d] -> [B, M, N, heads d]
  static Tensor of_heads(const Tensor& x) { return joined_heads(x.transpose(1, 2)); }

  void through_product(int i, const Tensor& rows) {
    const Node& node = graph_.node(i);
    const ops::bounds::PassedRows passed =
        ops::bounds::rows_through_product(rows, bounds_.product_lines(i));
    constants_.push_back(passed.constants);
    pass(node.inputs[0], passed.first);
    const bool of_rows = graph_.node(node.inputs[1]).shape.back() == 1;
    pass(node.inputs[1], of_rows ? passed.second.sum(-1, /*keepdim=*/true) : passed.second);
  }

  const NodeBounds& bounds_;
  const Graph& graph_;
  std::vector<Tensor> rows_;       // of each node: what is still to be passed on
  std::vector<Tensor> constants_;  // ops::bounds::PassedRows
  Tensor reach_;  // float64 [B, M]: how far the ball moves the rows, rounded upwards
};

}  // namespace

Tensor lower_bounds(const NodeBounds& bounds, int node, Tensor rows) {
  return BackwardPass(bounds, node, std::move(rows)).run();
}

int64_t bytes_of_a_row(const NodeBounds& bounds, int node) {
  const Graph& graph = bounds.graph();
  int64_t largest = 0;
  for (int i = 0; i <= node; ++i) largest = std::max(largest, graph.node(i).size());
  // The rows of a node, of those that it passes them on to, and their copies by head.
  constexpr int64_t kCopies = 6;
  return kCopies * bounds.ball().batch() * largest * bounds.ball().center.element_size();
}

Interval backward_interval(const NodeBounds& bounds, int node, int64_t block_bytes) {
  const Interval& known = bounds.interval(node);
  const Rounding rounding = rounding_of(known);
  const Tensor lo = known.lo.flatten(1).clone(), hi = known.hi.flatten(1).clone();
  const Tensor wide = (hi - lo) > at::maximum(lo.abs(), hi.abs()) * (64 * rounding.unit);
  const Tensor wanted = wide.any(0).nonzero().flatten();
  const int64_t elements = lo.size(1), count = wanted.numel();
  const int64_t block =
      std::clamp<int64_t>(block_bytes / (2 * bytes_of_a_row(bounds, node)), 1, elements);
  for (int64_t begin = 0; begin < count; begin += block) {
    const Tensor chosen = wanted.narrow(0, begin, std::min(block, count - begin));
    const int64_t n = chosen.numel();
    Tensor rows = at::zeros({2 * n, elements}, lo.options());
    rows.narrow(0, 0, n).scatter_(1, chosen.unsqueeze(1), 1.0);
    rows.narrow(0, n, n).scatter_(1, chosen.unsqueeze(1), -1.0);
    std::vector<int64_t> shape = {1, 2 * n};
    for (const int64_t size : bounds.graph().node(node).shape) shape.push_back(size);
    const Tensor found = lower_bounds(bounds, node, rows.view(shape));
    const Interval of_chosen = widened(
        {found.narrow(1, 0, n).to(lo.scalar_type()), (-found.narrow(1, n, n)).to(lo.scalar_type())},
        2);
    const Interval both =
        intersected({lo.index_select(1, chosen), hi.index_select(1, chosen)}, of_chosen);
    lo.index_copy_(1, chosen, both.lo);
    hi.index_copy_(1, chosen, both.hi);
  }
  return {lo.view_as(known.lo), hi.view_as(known.hi)};
}

}  // namespace seqfuse::certify
