#include "certify/forward.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace seqfuse::certify {
using at::Tensor;
namespace {

// |y - (mid · d + its last row)| <= rad · d + its last row, for every perturbation d of the ball: functions of
// the K perturbed coordinates, [B, K + 1, *shape]. rad may be [B, 1, *shape]: a number for each element.
struct Pencil {
  Tensor mid, rad;
  Tensor size;  // [B, *shape]: at least the sum of the absolute values of all terms
  // [H, D], of a matrix on the input: the slopes of each perturbed row by its own d; those of others are 0.
  Tensor of_own_row;
};

Tensor last_row(const Tensor& x) {
  return x.select(1, x.size(1) - 1);
}
// a + b, of which one may have one row, a constant.
Tensor plus(const Tensor& a, const Tensor& b) {
  if (a.size(1) == b.size(1)) return a + b;
  const bool a_is_short = a.size(1) < b.size(1);
  Tensor result = (a_is_short ? b : a).clone();
  last_row(result).add_(last_row(a_is_short ? a : b));
  return result;
}

class ForwardPass {
 public:
  ForwardPass(NodeBounds& bounds, int end)
      : bounds_(bounds),
        graph_(bounds.graph()),
        ball_(bounds.ball()),
        rounding_(Rounding::of(ball_.center.scalar_type())),
        coordinates_(static_cast<int64_t>(ball_.positions.size()) * ball_.width()),
        pencils_(static_cast<size_t>(end)),
        last_readers_(static_cast<size_t>(end), -1) {
    for (int i = 0; i < end; ++i) {
      for (const int input : graph_.node(i).inputs) last_readers_[static_cast<size_t>(input)] = i;
    }
  }

  void run() {
    for (int i = 0; i < static_cast<int>(pencils_.size()); ++i) {
      bounds_.set(i, bounds_.by_intervals(i));
      Pencil& pencil = pencils_[static_cast<size_t>(i)];
      pencil = of(i);
      bounds_.set(i, intersected(bounds_.interval(i), concretised(pencil)));
      for (const int input : graph_.node(i).inputs) {
        if (last_readers_[static_cast<size_t>(input)] == i)
          pencils_[static_cast<size_t>(input)] = {};
      }
    }
  }

 private:
  const Pencil& input(int i, size_t number) const {
    return pencils_[static_cast<size_t>(graph_.node(i).inputs[number])];
  }

  // Where both ends of each element are largest and smallest. Sets size.
  Interval concretised(Pencil& x) const {
    const Tensor mid = last_row(x.mid), rad = last_row(x.rad);
    const Tensor eps = ball_.eps_tensor(mid.dim(), mid.scalar_type());
    const auto reach = [&](const Tensor& rows) {
      const Tensor of_position =
          rows.narrow(1, 0, coordinates_)
              .unflatten(1, {static_cast<int64_t>(ball_.positions.size()), ball_.width()});
      return dual_norm(of_position, 2, ball_.norm).sum(1) * eps *
             (1 + 2 * rounding_.gamma(static_cast<int64_t>(ball_.positions.size()) + 4));
    };
    Tensor down, up;
    if (x.rad.size(1) == 1) {
      down = up = reach(x.mid);
    } else {
      down = reach(x.mid - x.rad);
      up = reach(x.mid + x.rad);
    }
    x.size = mid.abs() + rad.abs() + down + up;
    const Tensor more = x.size * (16 * rounding_.unit);
    return {mid - rad - down - more, mid + rad + up + more};
  }

  Pencil of(int i) {
    const Node& node = graph_.node(i);
    switch (node.op) {
      case Op::input:
        return of_input(i);
      case Op::linear:
        return of_linear(i);
      case Op::add: {
        const Pencil &x = input(i, 0), &y = input(i, 1);
        return with_lost({plus(x.mid, y.mid), plus(x.rad, y.rad), {}},
                         (x.size + y.size) * (8 * rounding_.unit));
      }
      case Op::function:
        return of_function(i);
      case Op::scores:
      case Op::context:
        return of_matrix_product(i);
      case Op::product:
        return of_product(i);
      case Op::first_row: {
        const Pencil& x = input(i, 0);
        return {x.mid.narrow(-2, 0, 1), x.rad.narrow(-2, 0, 1), {}};
      }
    }
    return {};
  }

  // Adds what rounding lost to the last row of rad.
  static Pencil with_lost(Pencil pencil, const Tensor& lost) {
    last_row(pencil.rad).add_(lost);
    return pencil;
  }

  // [B, K + 1, N, D]: slopes [H, D] at the perturbed positions, and the values [B, N, D] without perturbation.
  Tensor of_perturbed(const Tensor& slopes, const Tensor& values) const {
    const int64_t width = ball_.width();
    Tensor mid = at::zeros({ball_.batch(), coordinates_ + 1, values.size(1), values.size(2)},
                           values.options());
    for (size_t p = 0; p < ball_.positions.size(); ++p) {
      mid.narrow(1, static_cast<int64_t>(p) * width, width)
          .select(2, ball_.positions[p])
          .copy_(slopes);
    }
    last_row(mid).copy_(values);
    return mid;
  }

  Pencil of_input(int i) const {
    const Tensor slopes = at::eye(ball_.width(), ball_.center.options());
    return {of_perturbed(slopes, ball_.center),
            over_rows(bounds_.magnitude(i) * (16 * rounding_.unit)),
            {},
            slopes};
  }

  Pencil of_linear(int i) {
    const Node& node = graph_.node(i);
    const Pencil& x = input(i, 0);
    const Linear& linear = *node.linear;
    const Tensor weight = linear.weight.t();
    Pencil y;
    if (x.of_own_row.defined()) {
      y.of_own_row = at::matmul(x.of_own_row, weight);
      y.mid = of_perturbed(y.of_own_row, at::matmul(last_row(x.mid), weight));
    } else {
      y.mid = at::matmul(x.mid, weight);
    }
    last_row(y.mid).add_(linear.bias);
    y.rad = at::matmul(x.rad, linear.magnitude.t());
    const double gamma = rounding_.gamma(linear.weight.size(1) + 16);
    return with_lost(y, at::linear(x.size, linear.magnitude, linear.bias.abs()) * (3 * gamma));
  }

  // Lines below and above, each with the line of x that fits the sign of its slope.
  Pencil of_function(int i) {
    const Pencil& x = input(i, 0);
    const Lines& lines = bounds_.lines(i);
    const Tensor lower = lines.lower_slope.abs(), upper = lines.upper_slope.abs();
    const auto mixed = [&](const Tensor& mid_slope, const Tensor& rad_slope) {
      return plus(x.mid * over_rows(mid_slope * 0.5), x.rad * over_rows(rad_slope * 0.5));
    };
    Tensor mid = mixed(lines.upper_slope + lines.lower_slope, upper - lower);
    Tensor rad = mixed(lines.upper_slope - lines.lower_slope, upper + lower);
    last_row(mid).add_((lines.upper_offset + lines.lower_offset) * 0.5);
    last_row(rad).add_((lines.upper_offset - lines.lower_offset) * 0.5);
    return with_lost({mid, rad, {}}, ((lower + upper) * x.size + lines.lower_offset.abs() +
                                      lines.upper_offset.abs()) *
                                         (16 * rounding_.unit));
  }

  // x y = mx y + x my - mx my ± rx ry, where mx, my, rx and ry are of the intervals.
  Pencil of_matrix_product(int i) {
    const Node& node = graph_.node(i);
    const Pencil &x = input(i, 0), &y = input(i, 1);
    const Split &sx = bounds_.split(node.inputs[0]), &sy = bounds_.split(node.inputs[1]);
    const bool scores = node.op == Op::scores;
    const auto left = [&](const Tensor& t) { return scores ? by_head(t, node.heads) : t; };
    const auto right = [&](const Tensor& t) {
      const Tensor heads = by_head(t, node.heads);
      return scores ? heads.mT() : heads;
    };
    const auto joined = [&](const Tensor& t) { return scores ? t : joined_heads(t); };
    // [B, R, heads, a, b] · [B, heads, b, c], and the other way round.
    const auto times = [](const Tensor& rows, const Tensor& fixed) {
      const Tensor heads_first = rows.transpose(1, 2);
      return at::matmul(heads_first.flatten(2, 3), fixed)
          .unflatten(2, {heads_first.size(2), heads_first.size(3)})
          .transpose(1, 2);
    };
    const auto both = [&](const Tensor& rows_x, const Tensor& fixed_y, const Tensor& fixed_x,
                          const Tensor& rows_y) {
      return plus(times(left(rows_x), right(fixed_y)),
                  times(right(rows_y).mT(), left(fixed_x).mT()).mT());
    };
    Tensor mid = both(x.mid, sy.mid, sx.mid, y.mid).mul_(node.scale);
    Tensor rad = both(x.rad, sy.mid.abs(), sx.mid.abs(), y.rad).mul_(node.scale);
    const Constants& constants = bounds_.constants(i);
    const double gamma = rounding_.gamma(left(sx.mid).size(-1) + 32) * node.scale;
    mid = joined(mid).contiguous();
    rad = joined(rad).contiguous();
    last_row(mid).add_(constants.mid);
    last_row(rad).add_(constants.rad);
    const Tensor size = at::matmul(left(x.size), right(sy.mid.abs())) +
                        at::matmul(left(sx.mid.abs()), right(y.size));
    return with_lost({mid, rad, {}}, joined(size) * (4 * gamma));
  }

  Pencil of_product(int i) {
    const Pencil &x = input(i, 0), &y = input(i, 1);
    const Tensor &my = bounds_.product_slopes(i).first, &mx = bounds_.product_slopes(i).second;
    const Constants& constants = bounds_.constants(i);
    Tensor mid = plus(x.mid * over_rows(my), y.mid * over_rows(mx));
    Tensor rad = plus(x.rad * over_rows(my.abs()), y.rad * over_rows(mx.abs()));
    last_row(mid).add_(constants.mid);
    last_row(rad).add_(constants.rad);
    return with_lost({mid, rad, {}},
                     (x.size * my.abs() + y.size * mx.abs()) * (16 * rounding_.unit));
  }

  NodeBounds& bounds_;
  const Graph& graph_;
  const Ball& ball_;
  Rounding rounding_;
  int64_t coordinates_;
  std::vector<Pencil> pencils_;
  std::vector<int> last_readers_;
};

}  // namespace

void bound_forward(NodeBounds& bounds, int end) {
  ForwardPass(bounds, end).run();
}

int64_t forward_bytes(const Graph& graph, const Ball& ball) {
  int64_t largest = 0;
  for (int i = 0; i < graph.size(); ++i) largest = std::max(largest, graph.node(i).size());
  // mid and rad of a node's inputs and of itself, and temporary ones.
  constexpr int64_t kTensors = 10;
  return kTensors * ball.batch() *
         (static_cast<int64_t>(ball.positions.size()) * ball.width() + 1) * largest *
         ball.center.element_size();
}

}  // namespace seqfuse::certify
