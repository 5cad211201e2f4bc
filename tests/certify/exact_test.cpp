// Nets whose smallest margin is known: linear ones, and of one ReLU layer by enumeration.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "certify/margins.h"
#include "tests/certify/tiny_classifier.h"

namespace seqfuse::certify_exact_test {
namespace {

using certify::Graph;
using certify::Method;
using certify::Norm;

constexpr Method kMethods[] = {Method::ibp, Method::crown_baf, Method::crown};

certify::SharedLinear random_linear(int64_t out, int64_t in) {
  return std::make_shared<const certify::Linear>(at::randn({out, in}, at::kDouble),
                                                 at::randn({out}, at::kDouble), at::kDouble);
}

double lower_margin(const Graph& graph, const certify::Ball& ball, Method method) {
  return certify::margins(graph, ball, {0}, {.method = method}).lower[0][1].item<double>();
}

TEST(CertifyExact, LinearNets) {
  at::manual_seed(11);
  for (const Norm norm : {Norm::l1, Norm::l2, Norm::linf}) {
    Graph graph;
    const auto linear = random_linear(2, 6);
    graph.linear(graph.input(1, 6), linear);
    const at::Tensor center = at::randn({1, 6}, at::kDouble);
    const certify::Ball ball = test::ball_around(center, {0}, norm, {0.3});
    const at::Tensor slope = linear->weight[0] - linear->weight[1];
    const double dual = norm == Norm::l1   ? slope.abs().max().item<double>()
                        : norm == Norm::l2 ? slope.norm().item<double>()
                                           : slope.abs().sum().item<double>();
    const double exact =
        (at::dot(slope, center[0]) + linear->bias[0] - linear->bias[1]).item<double>() - 0.3 * dual;
    for (const Method method : {Method::crown_baf, Method::crown}) {
      const double bound = lower_margin(graph, ball, method);
      EXPECT_LE(bound, exact + 1e-14);
      EXPECT_NEAR(bound, exact, 1e-11);
    }
  }
}

// Two inputs x, three hidden units relu(V x + c), two classes. The margin is linear between the lines where a
// unit is 0, so its minimum over a polygon is at a corner, at a crossing of two lines, or of a line and a side.
class ReluNet {
 public:
  explicit ReluNet(uint64_t seed) {
    at::manual_seed(seed);
    hidden_ = random_linear(3, 2);
    output_ = random_linear(2, 3);
    graph_.linear(
        graph_.function(graph_.linear(graph_.input(1, 2), hidden_), certify::Function::relu),
        output_);
    center_ = at::randn({1, 2}, at::kDouble);
  }

  const Graph& graph() const { return graph_; }
  const at::Tensor& center() const { return center_; }

  double exact(Norm norm, double eps) const {
    using Line = std::array<double, 3>;  // a x + b y = c
    std::vector<Line> lines;
    const double px = center_[0][0].item<double>(), py = center_[0][1].item<double>();
    for (const double sign : {1.0, -1.0}) {
      if (norm == Norm::linf) {
        lines.push_back({1, 0, px + sign * eps});
        lines.push_back({0, 1, py + sign * eps});
      } else {
        lines.push_back({1, 1, px + py + sign * eps});
        lines.push_back({1, -1, px - py + sign * eps});
      }
    }
    for (int64_t unit = 0; unit < 3; ++unit) {
      lines.push_back({hidden_->weight[unit][0].item<double>(),
                       hidden_->weight[unit][1].item<double>(),
                       -hidden_->bias[unit].item<double>()});
    }
    double least = margin(px, py);
    for (const Line& l : lines) {
      for (const Line& m : lines) {
        const double det = l[0] * m[1] - l[1] * m[0];
        if (std::abs(det) < 1e-12) continue;
        const double x = (l[2] * m[1] - l[1] * m[2]) / det, y = (l[0] * m[2] - l[2] * m[0]) / det;
        const double dx = std::abs(x - px), dy = std::abs(y - py);
        const double size = norm == Norm::linf ? std::max(dx, dy) : dx + dy;
        if (size <= eps * (1 + 1e-9)) least = std::min(least, margin(x, y));
      }
    }
    return least;
  }

  // True if no unit changes its sign in the box around the ball.
  bool is_linear(double eps) const {
    const at::Tensor at_center = at::linear(center_, hidden_->weight, hidden_->bias)[0];
    return (at_center.abs() > hidden_->magnitude.sum(1) * eps).all().item<bool>();
  }

 private:
  double margin(double x, double y) const {
    const at::Tensor logits =
        graph_.evaluate(at::tensor({x, y}, at::kDouble).view({1, 1, 2}))[0][0];
    return (logits[0] - logits[1]).item<double>();
  }

  certify::SharedLinear hidden_, output_;
  Graph graph_;
  at::Tensor center_;
};

TEST(CertifyExact, ReluNetsByEnumeration) {
  int linear = 0, bent = 0;
  double crown_gap = 0, interval_gap = 0;
  for (uint64_t seed = 1; seed <= 15; ++seed) {
    const ReluNet net(seed);
    for (const Norm norm : {Norm::l1, Norm::linf}) {
      for (const double eps : {0.02, 0.3}) {
        const certify::Ball ball = test::ball_around(net.center(), {0}, norm, {eps});
        const double exact = net.exact(norm, eps);
        for (const Method method : kMethods) {
          const double bound = lower_margin(net.graph(), ball, method);
          EXPECT_LE(bound, exact + 1e-12) << seed << certify::name_of(method);
          if (method == Method::ibp) {
            interval_gap += exact - bound;
            continue;
          }
          crown_gap += exact - bound;
          if (net.is_linear(eps)) {
            EXPECT_NEAR(bound, exact, 1e-10) << seed;
          }
        }
        ++(net.is_linear(eps) ? linear : bent);
      }
    }
  }
  EXPECT_GT(linear, 10);
  EXPECT_GT(bent, 10);
  EXPECT_LT(crown_gap / 2, 0.5 * interval_gap);  // of two methods
}

}  // namespace
}  // namespace seqfuse::certify_exact_test
