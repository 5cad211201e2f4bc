// Boosted trees against functions that they must learn, and by hand where there is one split.
#include "tuning/boosted_trees.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/random.h"

namespace seqfuse::boosted_trees_test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using tuning::BoostedTrees;
using tuning::BoostingOptions;

TEST(BoostedTrees, OneSplitByHand) {
  const std::vector<double> x{1, 2, 3, 4}, y{10, 10, 20, 22};
  BoostedTrees trees;
  trees.fit({x, 1}, y,
            {.trees = 1, .depth = 1, .smallest_leaf = 1, .learning_rate = .5, .penalty = 0});
  // The mean is 15.5; the best cut is at 2.5, where residuals are -5.5 and 5.5 on average.
  EXPECT_DOUBLE_EQ(trees.base(), 15.5);
  ASSERT_EQ(trees.trees().size(), 1U);
  EXPECT_EQ(trees.trees()[0][0].threshold, 2.5);
  EXPECT_DOUBLE_EQ(trees.predict(std::vector<double>{2.5}), 15.5 - .5 * 5.5);
  EXPECT_DOUBLE_EQ(trees.predict(std::vector<double>{2.6}), 15.5 + .5 * 5.5);
  // With a penalty of 2 a leaf of two is half as far from the mean.
  trees.fit({x, 1}, y,
            {.trees = 1, .depth = 1, .smallest_leaf = 1, .learning_rate = .5, .penalty = 2});
  EXPECT_DOUBLE_EQ(trees.predict(std::vector<double>{0}), 15.5 - .25 * 5.5);
}

TEST(BoostedTrees, LimitsOfDepthAndLeaf) {
  std::vector<double> x(64), y(64);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<double>(i);
    y[i] = std::sin(x[i]);
  }
  BoostedTrees trees;
  trees.fit({x, 1}, y, {.trees = 1, .depth = 2, .smallest_leaf = 1});
  EXPECT_EQ(trees.trees()[0].size(), 7U);  // four leaves
  trees.fit({x, 1}, y, {.trees = 1, .depth = 10, .smallest_leaf = 33});
  EXPECT_EQ(trees.trees()[0].size(), 1U);  // no split leaves 33 on both sides
}

// y = 3 a + 2 a b - c^2 with d as noise; a column that does not matter.
TEST(BoostedTrees, LearnsAnInteraction) {
  Random random(7);
  std::vector<double> x, y, held_x, held_y;
  for (int i = 0; i < 1200; ++i) {
    const double a = random.unit(), b = random.unit(), c = random.unit(), d = random.unit();
    auto& features = i < 1000 ? x : held_x;
    features.insert(features.end(), {a, b, c, d});
    (i < 1000 ? y : held_y).push_back(3 * a + 2 * a * b - c * c);
  }
  BoostedTrees trees;
  trees.fit({x, 4}, y, BoostingOptions());
  double error = 0, variance = 0, mean = 0;
  for (const double value : held_y) mean += value / static_cast<double>(held_y.size());
  for (size_t i = 0; i < held_y.size(); ++i) {
    const double predicted = trees.predict({held_x.data() + 4 * i, 4});
    error += (predicted - held_y[i]) * (predicted - held_y[i]);
    variance += (mean - held_y[i]) * (mean - held_y[i]);
  }
  EXPECT_LT(error / variance, .01);  // R2 above .99 on what it has not seen
}

TEST(BoostedTrees, EqualRowsAndEqualTargets) {
  const std::vector<double> x{1, 1, 1, 1}, y{4, 4, 4, 4}, z{1, 3, 1, 3};
  BoostedTrees trees;
  trees.fit({x, 1}, y, BoostingOptions());
  EXPECT_DOUBLE_EQ(trees.predict(std::vector<double>{9}), 4);
  trees.fit({x, 1}, z, BoostingOptions());
  EXPECT_DOUBLE_EQ(trees.predict(std::vector<double>{9}), 2);
}

// The next double: no midpoint lies between them.
TEST(BoostedTrees, NeighbouringValuesAreSplit) {
  const double next = std::nextafter(1.0, 2.0);
  const std::vector<double> x{1, 1, next, next}, y{0, 0, 1, 1};
  BoostedTrees trees;
  trees.fit({x, 1}, y, {.trees = 1, .learning_rate = 1, .penalty = 0});
  EXPECT_EQ(trees.predict(std::vector<double>{1}), 0);
  EXPECT_EQ(trees.predict(std::vector<double>{next}), 1);
}

TEST(BoostedTrees, RefusesWhatIsNoTree) {
  const auto made = [](BoostedTrees::Node root, double other) {
    return [=] { BoostedTrees(2, 0, {{root, {.value = other}, {.value = 0}}}); };
  };
  EXPECT_THAT(made({.feature = 0, .left = 1, .right = 3}, 0),
              ThrowsMessage<Error>(HasSubstr("points to 1 and 3")));
  EXPECT_THAT(made({.feature = 0, .left = 0, .right = 1}, 0),
              ThrowsMessage<Error>(HasSubstr("points to 0 and 1")));
  EXPECT_THAT(made({.feature = 2, .left = 1, .right = 2}, 0),
              ThrowsMessage<Error>(HasSubstr("feature 2 of 2")));
  EXPECT_THAT(made({.feature = 0, .left = 1, .right = 2}, std::nan("")),
              ThrowsMessage<Error>(HasSubstr("not finite")));
  const std::vector<double> x{1, std::numeric_limits<double>::infinity()}, y{1, 2};
  BoostedTrees trees;
  EXPECT_THAT([&] { trees.fit({x, 1}, y, BoostingOptions()); },
              ThrowsMessage<Error>(HasSubstr("not finite")));
}

}  // namespace
}  // namespace seqfuse::boosted_trees_test
