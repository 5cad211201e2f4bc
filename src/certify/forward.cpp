#include "certify/forward.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace seqfuse::certify {
using at::Tensor;
namespace {

// Linear bounds of a node by the K perturbed coordinates; ops/kernels/bounds/bound_steps.h says what they are.
struct Pencil {
  ops::bounds::PencilTensors lines;
  // [H, D], of a matrix on the input: the slopes of each perturbed row by its own d; those of others are 0.
  Tensor of_own_row;
};

Tensor last_row(const Tensor& x) {
  return x.select(1, x.size(1) - 1);
}

class ForwardPass {
 public:
  ForwardPass(NodeBounds& bounds, int end)
      : bounds_(bounds),
        graph_(bounds.graph()),
        ball_(bounds.ball()),
        rounding_(Rounding::of(ball_.center.scalar_type())),
        pencils_(static_cast<size_t>(end)),
        last_readers_(static_cast<size_t>(end), -1) {
    const auto positions = static_cast<int64_t>(ball_.positions.size());
    reach_ = {.eps = ball_.eps_tensor(1, ball_.center.scalar_type()),
              .positions = positions,
              .coordinates = positions * ball_.width(),
              .norm = ball_.norm,
              .norm_scale = 1 + 2 * rounding_.gamma(ball_.width() + 8),
              // Squares underflow long before their roots do.
              .norm_lost = ball_.norm == Norm::l2 ? std::sqrt(rounding_.tiny) : rounding_.tiny,
              .reach_scale = 1 + 2 * rounding_.gamma(positions + 4)};
    for (int i = 0; i < end; ++i) {
      for (const int input : graph_.node(i).inputs) last_readers_[static_cast<size_t>(input)] = i;
    }
  }

  void run() {
    for (int i = 0; i < static_cast<int>(pencils_.size()); ++i) {
      bounds_.set(i, bounds_.by_intervals(i));
      Interval known = bounds_.interval(i);
      pencils_[static_cast<size_t>(i)] = of(i, known);
      bounds_.set(i, known);
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

  // known: the interval of the node by interval arithmetic, which becomes tighter.
  Pencil of(int i, Interval& known) {
    const Node& node = graph_.node(i);
    switch (node.op) {
      case Op::input:
        return of_input(i, known);
      case Op::linear:
        return of_linear(i, known);
      case Op::add:
        return {ops::bounds::sum_pencil(input(i, 0).lines, input(i, 1).lines, reach_, known), {}};
      case Op::function:
        return {ops::bounds::function_pencil(input(i, 0).lines, bounds_.lines(i), reach_, known),
                {}};
      case Op::scores:
      case Op::context:
        return of_matrix_product(i, known);
      case Op::product:
        return {ops::bounds::product_pencil(input(i, 0).lines, input(i, 1).lines,
                                            bounds_.product_lines(i), reach_, known),
                {}};
      case Op::first_row: {
        const ops::bounds::PencilTensors& x = input(i, 0).lines;
        return given(x.mid.narrow(-2, 0, 1).contiguous(), x.rad.narrow(-2, 0, 1).contiguous(),
                     known);
      }
    }
    return {};
  }

  // Without constants.
  Pencil given(const Tensor& mid, const Tensor& rad, Interval& known) const {
    return {ops::bounds::given_pencil(mid, rad, reach_, {}, {}, {}, 0, known), {}};
  }

  // [B, K + 1, N, D]: slopes [H, D] at the perturbed positions, and the values [B, N, D] without perturbation.
  Tensor of_perturbed(const Tensor& slopes, const Tensor& values) const {
    const int64_t width = ball_.width();
    Tensor mid = at::zeros({ball_.batch(), reach_.coordinates + 1, values.size(1), values.size(2)},
                           values.options());
    for (size_t p = 0; p < ball_.positions.size(); ++p) {
      mid.narrow(1, static_cast<int64_t>(p) * width, width)
          .select(2, ball_.positions[p])
          .copy_(slopes);
    }
    last_row(mid).copy_(values);
    return mid;
  }

  Pencil of_input(int i, Interval& known) const {
    const Tensor slopes = at::eye(ball_.width(), ball_.center.options());
    const Tensor lost = over_rows(bounds_.magnitude(i) * (16 * rounding_.unit));
    Pencil result = given(of_perturbed(slopes, ball_.center), lost, known);
    result.of_own_row = slopes;
    return result;
  }

  Pencil of_linear(int i, Interval& known) {
    const Node& node = graph_.node(i);
    const Pencil& x = input(i, 0);
    const Linear& linear = *node.linear;
    const Tensor weight = linear.weight.t();
    Tensor mid, of_own_row;
    if (x.of_own_row.defined()) {
      of_own_row = at::matmul(x.of_own_row, weight);
      mid = of_perturbed(of_own_row, at::matmul(last_row(x.lines.mid), weight));
    } else {
      mid = at::matmul(x.lines.mid, weight);
    }
    const Tensor rad = at::matmul(x.lines.rad, linear.magnitude.t());
    const double gamma = rounding_.gamma(linear.weight.size(1) + 16);
    const Tensor lost = at::linear(x.lines.size, linear.magnitude, linear.bias.abs());
    return {ops::bounds::given_pencil(mid, rad, reach_, linear.bias, {}, lost, 3 * gamma, known),
            of_own_row};
  }

  // to [B, heads, R, a, c] = x · fixed_y + fixed_x · y, where x and y have R rows, or only the last one of them.
  struct Factors {
    Tensor x, y;              // [B, heads, R, a, b] and [B, heads, R, b, c], views
    Tensor fixed_x, fixed_y;  // [B, heads, a, b] and [B, heads, b, c]
  };
  static void set_products(const Tensor& to, const Factors& factors) {
    const int64_t rows = to.size(2);
    const bool x_is_longer = factors.x.size(2) >= factors.y.size(2);
    // One product for each head leaves tensors where they are. Many would be many launches: then their
    // copies are small.
    constexpr int64_t kMostProducts = 8;
    if (to.size(0) * to.size(1) > kMostProducts) {
      Tensor longer = at::matmul(factors.x, factors.fixed_y.unsqueeze(2));
      Tensor shorter = at::matmul(factors.fixed_x.unsqueeze(2), factors.y);
      if (!x_is_longer) std::swap(longer, shorter);
      to.copy_(longer);
      to.narrow(2, rows - shorter.size(2), shorter.size(2)).add_(shorter);
      return;
    }
    for (int64_t batch = 0; batch < to.size(0); ++batch) {
      for (int64_t head = 0; head < to.size(1); ++head) {
        const auto of_head = [&](const Tensor& t) { return t.select(0, batch).select(0, head); };
        const Tensor result = of_head(to);
        const auto add = [&](const Tensor& a, const Tensor& b, int64_t of_rows, bool first) {
          const auto expanded = [&](const Tensor& t) {
            return t.dim() == 2 ? t.expand({of_rows, -1, -1}) : t;
          };
          Tensor part = result.narrow(0, rows - of_rows, of_rows);
          if (first) {
            at::bmm_out(part, expanded(a), expanded(b));
          } else {
            part.baddbmm_(expanded(a), expanded(b));
          }
        };
        for (const bool is_x : {x_is_longer, !x_is_longer}) {
          if (is_x) {
            add(of_head(factors.x), of_head(factors.fixed_y), factors.x.size(2), x_is_longer);
          } else {
            add(of_head(factors.fixed_x), of_head(factors.y), factors.y.size(2), !x_is_longer);
          }
        }
      }
    }
  }

  // x y = mx y + x my - mx my ± rx ry, where mx, my, rx and ry are of the intervals.
  Pencil of_matrix_product(int i, Interval& known) {
    const Node& node = graph_.node(i);
    const ops::bounds::PencilTensors &x = input(i, 0).lines, &y = input(i, 1).lines;
    const Split &sx = bounds_.split(node.inputs[0]), &sy = bounds_.split(node.inputs[1]);
    const bool scores = node.op == Op::scores;
    const auto left = [&](const Tensor& t) { return scores ? by_head(t, node.heads) : t; };
    const auto right = [&](const Tensor& t) {
      const Tensor heads = by_head(t, node.heads);
      return scores ? heads.mT() : heads;
    };
    const auto heads_first = [](const Tensor& rows) { return rows.transpose(1, 2); };
    const auto both = [&](const Tensor& of_x, const Tensor& of_y, const Tensor& fixed_x,
                          const Tensor& fixed_y) {
      std::vector<int64_t> shape = {ball_.batch(), std::max(of_x.size(1), of_y.size(1))};
      shape.insert(shape.end(), node.shape.begin(), node.shape.end());
      Tensor to = at::empty(shape, of_x.options());
      set_products(heads_first(scores ? to : by_head(to, node.heads)),
                   {heads_first(left(of_x)), heads_first(right(of_y)), left(fixed_x * node.scale),
                    right(fixed_y * node.scale)});
      return to;
    };
    const Tensor x_size = sx.mid.abs(), y_size = sy.mid.abs();
    const Tensor mid = both(x.mid, y.mid, sx.mid, sy.mid);
    const Tensor rad = both(x.rad, y.rad, x_size, y_size);
    const Constants& constants = bounds_.constants(i);
    const double gamma = rounding_.gamma(left(sx.mid).size(-1) + 32) * node.scale;
    const Tensor size =
        at::matmul(left(x.size), right(y_size)) + at::matmul(left(x_size), right(y.size));
    return {ops::bounds::given_pencil(mid, rad, reach_, constants.mid, constants.rad,
                                      scores ? size : joined_heads(size), 4 * gamma, known),
            {}};
  }

  NodeBounds& bounds_;
  const Graph& graph_;
  const Ball& ball_;
  Rounding rounding_;
  ops::bounds::PencilBall reach_;
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
  // mid and rad of a node's inputs and of itself, and of what is added later.
  constexpr int64_t kTensors = 8;
  return kTensors * ball.batch() *
         (static_cast<int64_t>(ball.positions.size()) * ball.width() + 1) * largest *
         ball.center.element_size();
}

}  // namespace seqfuse::certify
