// No sample and no attack leaves the bounds.
#include <gtest/gtest.h>

#include "certify/margins.h"
#include "tests/certify/attacks.h"
#include "tests/certify/tiny_classifier.h"

namespace seqfuse::certify_samples_test {
namespace {

using certify::LayerNorm;
using certify::Method;
using certify::Norm;
using test::TinyClassifier;

struct Case {
  const char* name;
  const char* hidden_act;
  LayerNorm norm;
  Norm ball;
  double eps;
  at::ScalarType dtype = at::kDouble;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

class Samples : public testing::TestWithParam<Case> {};

// The least and largest of label - other over the points, [2, C].
at::Tensor extremes(const certify::Graph& graph, const at::Tensor& points, int64_t label) {
  const at::NoGradGuard no_grad;
  const at::Tensor logits = graph.evaluate(points).squeeze(1);
  const at::Tensor margins = logits.select(1, label).unsqueeze(1) - logits;
  return at::stack({margins.amin(0), margins.amax(0)});
}

TEST_P(Samples, AreWithinTheBounds) {
  constexpr int64_t kSamples = 100'000, kBlock = 10'000, kAttacks = 50;
  const Case& c = GetParam();
  const TinyClassifier tiny = TinyClassifier::of(c.hidden_act, c.norm);
  const std::vector<int64_t> ids{2, 7, 5};
  const auto exact = tiny.make(), bounded = tiny.make(c.dtype);
  const certify::Graph graph = exact.graph(3), graph_of_bounds = bounded.graph(3);
  const at::Tensor center = exact.embeddings(ids);
  const int64_t label = test::predicted(graph, center);
  at::manual_seed(5);
  const certify::Ball ball = test::ball_around(center, {0, 2}, c.ball, {c.eps});

  at::Tensor found;
  const auto add = [&](const at::Tensor& moves) {
    const at::Tensor of_block = extremes(graph, test::moved(center, ball, moves), label);
    found =
        found.defined()
            ? at::stack({at::minimum(found[0], of_block[0]), at::maximum(found[1], of_block[1])})
            : of_block;
  };
  for (int64_t done = 0; done < kSamples; done += kBlock) add(test::random_moves(ball, kBlock));
  for (int64_t other = 0; other < tiny.classes; ++other) {
    if (other == label) continue;
    at::Tensor row = at::zeros({tiny.classes}, at::kDouble);
    row[label] = 1;
    row[other] = -1;
    for (const double sign : {1.0, -1.0}) {
      add(test::attacked(graph, ball, center, row, sign, kAttacks));
    }
  }
  const certify::Ball of_bounds =
      test::ball_around(bounded.embeddings(ids), ball.positions, c.ball, {c.eps});
  for (const Method method : {Method::ibp, Method::crown_baf, Method::crown}) {
    const auto bounds = certify::margins(graph_of_bounds, of_bounds, {label}, {.method = method});
    EXPECT_TRUE(at::isfinite(bounds.lower).all().item<bool>()) << certify::name_of(method);
    EXPECT_TRUE((bounds.lower[0] <= found[0]).all().item<bool>())
        << certify::name_of(method) << bounds.lower << found;
    EXPECT_TRUE((bounds.upper[0] >= found[1]).all().item<bool>())
        << certify::name_of(method) << bounds.upper << found;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Samples,
    testing::Values(
        Case{"relu_l1", "relu", LayerNorm::no_division, Norm::l1, 0.1},
        Case{"relu_l2", "relu", LayerNorm::no_division, Norm::l2, 0.1},
        Case{"relu_linf", "relu", LayerNorm::no_division, Norm::linf, 0.03},
        Case{"gelu_division_l1", "gelu", LayerNorm::standard, Norm::l1, 0.05},
        Case{"gelu_division_l2", "gelu", LayerNorm::standard, Norm::l2, 0.05},
        Case{"gelu_division_linf", "gelu", LayerNorm::standard, Norm::linf, 0.02},
        Case{"relu_float_linf", "relu", LayerNorm::no_division, Norm::linf, 0.03, at::kFloat},
        Case{"gelu_new_float_l2", "gelu_new", LayerNorm::no_division, Norm::l2, 0.05, at::kFloat}),
    [](const auto& of_case) { return std::string(of_case.param.name); });

}  // namespace
}  // namespace seqfuse::certify_samples_test
