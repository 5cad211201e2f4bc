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
    sum_ = at::zeros({batch, rows.size(1)}, rows.options().dtype(at::kDouble));
    size_ = at::zeros_like(sum_);
    std::vector<int64_t> shape = rows.sizes().vec();
    shape[0] = batch;
    rows_.back() = rows.expand(shape);
  }

  Tensor run() {
    for (int i = static_cast<int>(rows_.size()) - 1; i >= 0; --i) {
      const Tensor rows = std::exchange(rows_[static_cast<size_t>(i)], Tensor());
      if (rows.defined()) step(i, rows);
    }
    // Of the sums over nodes, in double, and of all products that underflow.
    const double underflow = 1e5 * Rounding::of(bounds_.ball().center.scalar_type()).tiny;
    return sum_ - size_ * (static_cast<double>(graph_.size() + 16) * 0x1p-52) - underflow;
  }

 private:
  // Adds sum(rows * mid) - sum(|rows| * rad), downwards.
  void add_constants(const Tensor& rows, const Tensor& mid, const Tensor& rad) {
    const Rounding rounding = Rounding::of(rows.scalar_type());
    const int64_t terms = mid.numel() / mid.size(0);
    Tensor value, lost;
    if (rows.scalar_type() == at::kDouble) {
      const Tensor more = rad + (mid.abs() + rad) * (2 * rounding.gamma(terms + 8));
      const auto column = [&](const Tensor& x) { return x.reshape({x.size(0), terms, 1}); };
      const Tensor flat = rows.reshape({rows.size(0), rows.size(1), terms});
      value = at::bmm(flat, column(mid)).squeeze(-1);
      lost = at::bmm(flat.abs(), column(more)).squeeze(-1);
    } else {  // products in float, their sums in double
      const Tensor more = rad + (mid.abs() + rad) * (8 * rounding.unit);
      std::vector<int64_t> dims;
      for (int64_t dim = 2; dim < rows.dim(); ++dim) dims.push_back(dim);
      value = at::sum(rows * over_rows(mid), dims, false, at::kDouble);
      lost = at::sum(rows.abs().mul_(over_rows(more)), dims, false, at::kDouble);
      lost = lost * (1 + 1e-9);
    }
    sum_ += value - lost;
    size_ += value.abs() + lost;
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

  // What summing the rows of several readers lost.
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
    sum_ -= reach;
    size_ += reach;
  }

  // Of rows above 0 the lower line, of those below 0 the upper one: with their mean and half their
  // difference, and |rows|.
  void through_function(int i, const Tensor& rows) {
    const int from = graph_.node(i).inputs[0];
    const Lines& lines = bounds_.lines(i);
    const double unit = Rounding::of(rows.scalar_type()).unit;
    const Tensor mean = (lines.lower_slope + lines.upper_slope) * 0.5;
    const Tensor half = (lines.lower_slope - lines.upper_slope) * 0.5;
    const Tensor offset = (lines.lower_offset + lines.upper_offset) * 0.5;
    const Tensor gap = (lines.upper_offset - lines.lower_offset) * 0.5;
    const Tensor lost =
        ((lines.lower_slope.abs() + lines.upper_slope.abs()) * bounds_.magnitude(from) +
         lines.lower_offset.abs() + lines.upper_offset.abs() + bounds_.magnitude(i)) *
        (8 * unit);
    add_constants(rows, offset, gap + lost);
    pass(from, (rows * over_rows(mean)).addcmul_(rows.abs(), over_rows(half)));
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
    add_constants(rows, bounds_.constants(i).mid, bounds_.constants(i).rad);
    const ProductSlopes& slopes = bounds_.product_slopes(i);
    pass(node.inputs[0], rows * over_rows(slopes.first));
    Tensor second = rows * over_rows(slopes.second);
    if (graph_.node(node.inputs[1]).shape.back() == 1) second = second.sum(-1, /*keepdim=*/true);
    pass(node.inputs[1], second);
  }

  const NodeBounds& bounds_;
  const Graph& graph_;
  std::vector<Tensor> rows_;  // of each node: what is still to be passed on
  Tensor sum_, size_;         // float64 [B, M]: the constants, and their absolute values
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
  const Rounding rounding = known.rounding();
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
