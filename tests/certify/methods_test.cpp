// Relations between methods, radii, positions, batches and dtypes, and bounds against the oracles.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "base/parallel.h"
#include "certify/backward.h"
#include "certify/margins.h"
#include "certify/radius.h"
#include "tests/certify/tiny_classifier.h"
#include "tests/oracles/linear_bounds.h"
#include "tests/temporary_directory.h"

namespace seqfuse::certify_methods_test {
namespace {

using certify::Graph;
using certify::LayerNorm;
using certify::Method;
using certify::Norm;
using test::ball_around;
using test::TinyClassifier;

// Nets of these tests are so small that threads would wait for each other most of the time.
class OneThread : public testing::Environment {
 public:
  void SetUp() override {
    at::set_num_threads(1);
    set_num_threads(1);
  }
};
[[maybe_unused]] const testing::Environment* const kOneThread =
    testing::AddGlobalTestEnvironment(new OneThread);

constexpr Method kMethods[] = {Method::ibp, Method::crown_baf, Method::crown};
constexpr Norm kNorms[] = {Norm::l1, Norm::l2, Norm::linf};

const std::vector<TinyClassifier>& models() {
  static const std::vector<TinyClassifier> models = {
      TinyClassifier::of("relu", LayerNorm::no_division, 2),
      TinyClassifier::of("gelu", LayerNorm::standard),
      TinyClassifier::of("gelu_new", LayerNorm::no_division)};
  return models;
}

struct Problem {
  Graph graph;
  at::Tensor center;
  int64_t label;

  explicit Problem(const TinyClassifier& tiny, at::ScalarType dtype = at::kDouble,
                   const std::vector<int64_t>& ids = {2, 7, 5}) {
    const auto classifier = tiny.make(dtype);
    graph = classifier.graph(static_cast<int64_t>(ids.size()));
    center = classifier.embeddings(ids);
    label = test::predicted(graph, center);
  }

  certify::Margins margins(Method method, const std::vector<int64_t>& positions, Norm norm,
                           const std::vector<double>& eps) const {
    return certify::margins(graph, ball_around(center, positions, norm, eps),
                            std::vector<int64_t>(eps.size(), label), {.method = method});
  }

  double radius(Method method, const std::vector<int64_t>& positions, Norm norm,
                certify::SearchOptions options = {}) const {
    const auto certify = [&](const std::vector<double>& eps) {
      return certify::smallest_margins(margins(method, positions, norm, eps),
                                       std::vector<int64_t>(eps.size(), label));
    };
    const auto found = certify::largest_radius(certify, options, [] { return true; });
    if (found->certified > 0) {
      EXPECT_GT(certify({found->certified})[0], 0);
    }
    EXPECT_FALSE(certify({found->not_certified})[0] > 0);
    EXPECT_LE(found->not_certified, found->certified * (1 + options.tolerance));
    return found->certified;
  }
};

TEST(Certify, TheGraphIsTheClassifier) {
  for (const int64_t layers : {1, 2}) {
    const TinyClassifier tiny = TinyClassifier::of("gelu", LayerNorm::standard, layers);
    const Problem problem(tiny);
    const auto tensors = tiny.tensors();
    const oracle::Bert bert(layers, tiny.bert.heads, tiny.bert.eps, "gelu", tensors);
    const at::Tensor state =
        bert.states({2, 7, 5}, {0, 0, 0}, [](int64_t, int64_t) { return true; })[0];
    const at::Tensor pooled = at::tanh(at::matmul(tensors.at("pooler.dense.weight"), state) +
                                       tensors.at("pooler.dense.bias"));
    const at::Tensor logits =
        at::matmul(tensors.at("classifier.weight"), pooled) + tensors.at("classifier.bias");
    const at::Tensor found = problem.graph.evaluate(problem.center.unsqueeze(0)).flatten();
    EXPECT_LT((found - logits).abs().max().item<double>(), 1e-12);
  }
}

TEST(Certify, RadiusZeroGivesTheForwardResult) {
  for (const TinyClassifier& tiny : models()) {
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      const Problem problem(tiny, dtype), exact(tiny);
      const at::Tensor logits = exact.graph.evaluate(exact.center.unsqueeze(0)).flatten();
      const at::Tensor expected = logits[problem.label] - logits;
      for (const Method method : kMethods) {
        const auto found = problem.margins(method, {0, 1, 2}, Norm::l2, {0});
        const double slack =
            dtype == at::kDouble ? 1e-9 : 0.2;  // of intervals, several layers deep
        EXPECT_TRUE((found.lower[0] <= expected).all().item<bool>());
        EXPECT_TRUE((found.upper[0] >= expected).all().item<bool>());
        EXPECT_LT((found.upper - found.lower).max().item<double>(), slack)
            << certify::name_of(method) << " " << tiny.bert.hidden_act;
      }
    }
  }
}

TEST(Certify, LinearBoundsAreNeverLooserThanIntervals) {
  for (const TinyClassifier& tiny : models()) {
    const Problem problem(tiny);
    for (const Norm norm : kNorms) {
      const std::vector<double> eps{1e-4, 0.01, 0.05, 0.3, 4};
      const auto intervals = problem.margins(Method::ibp, {1, 2}, norm, eps);
      for (const Method method : {Method::crown_baf, Method::crown}) {
        const auto found = problem.margins(method, {1, 2}, norm, eps);
        EXPECT_TRUE((found.lower >= intervals.lower - 1e-9).all().item<bool>());
        EXPECT_TRUE((found.upper <= intervals.upper + 1e-9).all().item<bool>());
      }
    }
  }
}

TEST(Certify, RadiiOrderedByMethodAndPositions) {
  const certify::SearchOptions coarse{.tolerance = 0.05};
  for (const size_t model : {0, 1}) {
    const Problem problem(models()[model]);
    for (const Norm norm : {model == 0 ? Norm::l2 : Norm::linf}) {
      double last = std::numeric_limits<double>::infinity();
      for (const std::vector<int64_t>& positions : {std::vector<int64_t>{1}, {0, 1}, {0, 1, 2}}) {
        const double baf = problem.radius(Method::crown_baf, positions, norm, coarse);
        EXPECT_GT(baf, 0);
        EXPECT_LE(baf, last * 1.05);
        EXPECT_GE(baf * 1.05, problem.radius(Method::ibp, positions, norm, coarse));
        last = baf;
      }
    }
  }
  const Problem problem(models()[1]);
  const double crown = problem.radius(Method::crown, {1}, Norm::l2, coarse);
  EXPECT_LE(problem.radius(Method::crown, {0, 1}, Norm::l2, coarse), crown * 1.05);
  EXPECT_GE(crown * 1.05, problem.radius(Method::ibp, {1}, Norm::l2, coarse));
}

TEST(Certify, BatchesBlocksAndSearchesAgree) {
  const Problem problem(models()[1]);
  const std::vector<double> eps{0.01, 0.002, 0.04};
  for (const Method method : kMethods) {
    const auto together = problem.margins(method, {0, 2}, Norm::l2, eps);
    for (size_t i = 0; i < eps.size(); ++i) {
      const auto alone = problem.margins(method, {0, 2}, Norm::l2, {eps[i]});
      EXPECT_LT(
          (together.lower[static_cast<int64_t>(i)] - alone.lower[0]).abs().max().item<double>(),
          1e-9);
    }
    if (method == Method::crown) continue;
    const double one = problem.radius(method, {0, 2}, Norm::l2);
    EXPECT_NEAR(problem.radius(method, {0, 2}, Norm::l2, {.together = 5}), one, 2e-3 * one);
  }
  const auto ball = ball_around(problem.center, {0, 2}, Norm::l2, {0.01});
  const auto all =
      certify::margins(problem.graph, ball, {problem.label}, {.method = Method::crown});
  const auto blocks = certify::margins(problem.graph, ball, {problem.label},
                                       {.method = Method::crown, .block_bytes = 100'000});
  EXPECT_LT((all.lower - blocks.lower).abs().max().item<double>(), 1e-9);
}

// Rounding that is lost going forwards grows as intervals do; going backwards it does not.
TEST(Certify, Float32RadiiAreSmaller) {
  const certify::SearchOptions options{.tolerance = 1e-3};
  const Problem wide(models()[2]), narrow(models()[2], at::kFloat);
  for (const auto& [method, least] :
       {std::pair{Method::ibp, 0.95}, {Method::crown_baf, 0.8}, {Method::crown, 0.99}}) {
    const double exact = wide.radius(method, {1, 2}, Norm::l2, options);
    const double found = narrow.radius(method, {1, 2}, Norm::l2, options);
    EXPECT_LE(found, exact * (1 + 1e-3));
    EXPECT_GE(found, exact * least) << certify::name_of(method);
  }
}

// The smallest margin of the label, by the oracle.
double reference_margin(const TinyClassifier& tiny, Method method, Norm norm, double eps,
                        int64_t label) {
  using Reference = oracle::LinearBounds;
  const Reference::Model model{.layers = tiny.bert.layers,
                               .heads = tiny.bert.heads,
                               .eps = tiny.bert.eps,
                               .hidden_act = tiny.bert.hidden_act,
                               .division = tiny.norm == LayerNorm::standard,
                               .tensors = tiny.tensors()};
  const int order = norm == Norm::l1 ? 1 : norm == Norm::l2 ? 2 : 0;
  const Reference bounds(model, static_cast<Reference::Method>(method), {2, 7, 5}, {0, 2}, order,
                         eps);
  double least = std::numeric_limits<double>::infinity();
  for (int64_t other = 0; other < tiny.classes; ++other) {
    if (other != label) least = std::min(least, bounds.margin(label, other));
  }
  return least;
}

TEST(Certify, BoundsAreThoseOfTheOracle) {
  for (const size_t model : {0, 1}) {
    const TinyClassifier& tiny = models()[model];
    const Problem problem(tiny);
    for (const Norm norm : kNorms) {
      for (const Method method : kMethods) {
        if (method == Method::crown && norm == Norm::linf) continue;  // slow, and as the others
        const double eps = problem.radius(method, {0, 2}, norm, {.tolerance = 0.05});
        const auto smallest = [&](double radius) {
          const auto found = problem.margins(method, {0, 2}, norm, {radius});
          return certify::smallest_margins(found, {problem.label})[0];
        };
        const double exact = smallest(0),
                     expected = reference_margin(tiny, method, norm, eps, problem.label);
        EXPECT_NEAR(smallest(eps), expected, 2e-3 * (exact - expected))
            << certify::name_of(method) << " " << tiny.bert.hidden_act << " " << eps;
      }
    }
  }
}

TEST(Certify, HugeRadiiCertifyNothing) {
  for (const TinyClassifier& tiny : models()) {
    const Problem problem(tiny, at::kFloat);
    for (const Method method : kMethods) {
      const auto found = problem.margins(method, {0, 1, 2}, Norm::l2, {1e4, 1e30});
      EXPECT_FALSE(at::isnan(found.lower).any().item<bool>());
      for (const double margin : certify::smallest_margins(found, {problem.label, problem.label})) {
        EXPECT_LT(margin, 0);
      }
    }
  }
}

// The number of radii that a search tries, for margins that fall in different ways; bisection tries 14 from a
// bracket of a factor of 4.
TEST(Certify, SearchesFollowTheMargin) {
  const std::vector<std::pair<const char*, std::function<double(double)>>> margins = {
      {"line", [](double r) { return 1 - 20 * r; }},
      {"curve", [](double r) { return 2 - 3 * r - 40 * r * r; }},
      {"exponential", [](double r) { return 2 - std::expm1(8 * r); }},
      {"without end", [](double r) { return r < 0.07 ? 1 - 4 * r : -HUGE_VAL; }},
      {"step", [](double r) { return r < 0.3 ? 1.0 : -1e6; }},
      {"tiny", [](double r) { return 1e-7 - r; }}};
  for (const auto& [name, margin] : margins) {
    for (const int64_t together : {1, 2, 3, 8}) {
      const auto certify = [&](const std::vector<double>& radii) {
        EXPECT_TRUE(std::ranges::is_sorted(radii));
        std::vector<double> found;
        for (const double radius : radii) found.push_back(margin(radius));
        return found;
      };
      int batches = 0;
      const auto found =
          certify::largest_radius(certify, {.together = together}, [&] { return ++batches < 100; });
      ASSERT_TRUE(found) << name << together;
      EXPECT_GT(margin(found->certified), 0) << name;
      EXPECT_LE(margin(found->not_certified), 0) << name;
      EXPECT_LE(found->not_certified, found->certified * 1.001) << name;
      EXPECT_GT(found->not_certified, found->certified) << name;
      const bool is_smooth = name != std::string("without end") && name != std::string("step");
      if (is_smooth && name != std::string("tiny")) {
        EXPECT_LE(batches, together == 1 ? 12 : together == 8 ? 4 : 8) << name << together;
      } else {
        EXPECT_LE(batches, 35) << name << together;
      }
    }
  }
}

TEST(Certify, ASearchStopsWhenAsked) {
  int asked = 0;
  const auto found = certify::largest_radius(
      [](const std::vector<double>& eps) { return std::vector<double>(eps.size(), 1.0 - eps[0]); },
      {}, [&] { return ++asked < 3; });
  EXPECT_FALSE(found);
  EXPECT_EQ(asked, 3);
}

TEST(CertifyModel, FoldersAndRefusals) {
  const TemporaryDirectory folder;
  const TinyClassifier tiny = models()[0];
  tiny.write(folder.path());
  const auto loaded = certify::BertClassifier::load(folder.path(), at::kDouble);
  EXPECT_EQ(loaded.layer_norm(), LayerNorm::no_division);
  EXPECT_EQ(loaded.classes(), 3);
  const std::vector<int64_t> ids{2, 7, 5};
  const at::Tensor expected =
      Problem(tiny).graph.evaluate(tiny.make().embeddings(ids).unsqueeze(0));
  EXPECT_TRUE(at::equal(loaded.graph(3).evaluate(loaded.embeddings(ids).unsqueeze(0)), expected));
  const auto refusal = [&](const char* key, const char* value) {
    nlohmann::json config = tiny.bert.config();
    config[key] = value;
    std::ofstream(folder.path() / "config.json") << config;
    try {
      certify::load_layer_norm(folder.path());
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_EQ(refusal("layer_norm", "no_var"), "nothing");
  EXPECT_NE(refusal("layer_norm", "no").find("layer_norm is 'no'"), std::string::npos);
  EXPECT_NE(refusal("layer_norm_type", "rms").find("bounds exist for standard"), std::string::npos);
  EXPECT_THROW(loaded.embeddings(std::vector<int64_t>(9, 1)), UsageError);
  EXPECT_THROW(loaded.embeddings(std::vector<int64_t>{11}), UsageError);

  auto tensors = tiny.tensors();
  const auto head = [&] {
    return models::bert::make_classifier_head(tiny.bert.model_config(), tensors, at::kDouble,
                                              at::kCPU, "FILE");
  };
  tensors["pooler.dense.weight"][0][0] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(head(), DataError);
  tensors = tiny.tensors();
  tensors["classifier.bias"] = at::zeros({1}, at::kDouble);
  EXPECT_THROW(head(), DataError);
}

}  // namespace
}  // namespace seqfuse::certify_methods_test
