#include "tuning/boosted_trees.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace seqfuse::tuning {
namespace {

struct Split {
  size_t feature = 0;
  double threshold = 0;
  double gain = 0;  // 0: there is none
};

// At least low, below high.
double between(double low, double high) {
  const double middle = std::midpoint(low, high);
  return middle < high ? middle : low;
}

// Grows one tree on the residuals of all rows.
class Grower {
 public:
  Grower(const FeatureRows& features, const BoostingOptions& options)
      : options_(options), columns_(features.columns), order_(features.columns) {
    // Rows by each feature, sorted once for all trees; equal values by the row's number.
    for (size_t f = 0; f < features.columns; ++f) {
      for (size_t r = 0; r < features.rows(); ++r) columns_[f].push_back(features.row(r)[f]);
      order_[f].resize(features.rows());
      std::iota(order_[f].begin(), order_[f].end(), size_t{0});
      std::stable_sort(order_[f].begin(), order_[f].end(),
                       [&](size_t a, size_t b) { return value(a, f) < value(b, f); });
    }
  }

  BoostedTrees::Tree grow(std::span<const double> residuals) {
    residuals_ = residuals;
    tree_.clear();
    grow_node(order_, 0);
    return std::move(tree_);
  }

 private:
  using Order = std::vector<std::vector<size_t>>;  // [feature]: the rows of a node

  double value(size_t row, size_t feature) const { return columns_[feature][row]; }

  // By how much a leaf of these rows lowers the loss, up to a constant factor.
  double score(double sum, size_t count) const {
    return sum * sum / (static_cast<double>(count) + options_.penalty);
  }

  Split best_split(const Order& order, double sum) const {
    const size_t count = order[0].size(), smallest = static_cast<size_t>(options_.smallest_leaf);
    // Rounding alone must not make a split.
    const double least = score(sum, count) * (1 + 1e-9) + 1e-12;
    Split best;
    for (size_t f = 0; f < order.size(); ++f) {
      double left = 0;
      for (size_t i = 0; i + 1 < count; ++i) {
        left += residuals_[order[f][i]];
        const double here = value(order[f][i], f), next = value(order[f][i + 1], f);
        if (here == next || i + 1 < smallest || count - i - 1 < smallest) continue;
        const double both = score(left, i + 1) + score(sum - left, count - i - 1);
        if (both > least && both - least > best.gain) best = {f, between(here, next), both - least};
      }
    }
    return best;
  }

  // Adds the node of these rows and all below it; returns its index.
  int grow_node(const Order& order, int depth) {
    const auto index = static_cast<int>(tree_.size());
    tree_.emplace_back();
    const size_t count = order[0].size();
    double sum = 0;
    for (const size_t row : order[0]) sum += residuals_[row];
    const Split split = depth < options_.depth ? best_split(order, sum) : Split();
    if (split.gain == 0) {
      tree_[static_cast<size_t>(index)].value =
          options_.learning_rate * sum / (static_cast<double>(count) + options_.penalty);
      return index;
    }
    Order left(order.size()), right(order.size());
    for (size_t f = 0; f < order.size(); ++f) {
      for (const size_t row : order[f])
        (value(row, split.feature) <= split.threshold ? left : right)[f].push_back(row);
    }
    const int left_child = grow_node(left, depth + 1), right_child = grow_node(right, depth + 1);
    tree_[static_cast<size_t>(index)] = {.feature = static_cast<int>(split.feature),
                                         .threshold = split.threshold,
                                         .left = left_child,
                                         .right = right_child};
    return index;
  }

  const BoostingOptions& options_;
  std::vector<std::vector<double>> columns_;  // [feature, row]
  Order order_;
  std::span<const double> residuals_;
  BoostedTrees::Tree tree_;
};

double value_of(const BoostedTrees::Tree& tree, std::span<const double> row) {
  size_t at = 0;
  while (tree[at].feature >= 0) {
    const BoostedTrees::Node& node = tree[at];
    const bool left = row[static_cast<size_t>(node.feature)] <= node.threshold;
    at = static_cast<size_t>(left ? node.left : node.right);
  }
  return tree[at].value;
}

}  // namespace

BoostedTrees::BoostedTrees(size_t columns, double base, std::vector<Tree> trees)
    : columns_(columns), base_(base), trees_(std::move(trees)) {
  for (const Tree& tree : trees_) {
    SEQFUSE_CHECK(!tree.empty(), "trees: one has no node");
    for (size_t i = 0; i < tree.size(); ++i) {
      const Node& node = tree[i];
      SEQFUSE_CHECK(std::isfinite(node.threshold) && std::isfinite(node.value),
                    "trees: node {} has a number that is not finite", i);
      if (node.feature < 0) continue;
      const auto below = [&](int child) {
        return child > static_cast<int>(i) && child < static_cast<int>(tree.size());
      };
      SEQFUSE_CHECK(below(node.left) && below(node.right),
                    "trees: node {} of {} points to {} and {}; expected later ones", i, tree.size(),
                    node.left, node.right);
      SEQFUSE_CHECK(node.feature < static_cast<int>(columns), "trees: feature {} of {}",
                    node.feature, columns);
    }
  }
}

void BoostedTrees::fit(const FeatureRows& features, std::span<const double> targets,
                       const BoostingOptions& options) {
  const size_t rows = features.rows();
  SEQFUSE_CHECK(rows > 0 && rows == targets.size() && features.values.size() % rows == 0,
                "trees: {} rows of features and {} targets; expected one for each, and a row", rows,
                targets.size());
  const auto finite = [](double x) { return std::isfinite(x); };
  SEQFUSE_CHECK(std::all_of(features.values.begin(), features.values.end(), finite) &&
                    std::all_of(targets.begin(), targets.end(), finite),
                "trees: a feature or a target is not finite");
  columns_ = features.columns;
  base_ = std::accumulate(targets.begin(), targets.end(), 0.0) / static_cast<double>(rows);
  trees_.clear();
  std::vector<double> residuals(targets.begin(), targets.end());
  for (double& residual : residuals) residual -= base_;
  Grower grower(features, options);
  for (int t = 0; t < options.trees; ++t) {
    trees_.push_back(grower.grow(residuals));
    for (size_t r = 0; r < rows; ++r) residuals[r] -= value_of(trees_.back(), features.row(r));
  }
}

double BoostedTrees::predict(std::span<const double> row) const {
  double sum = base_;
  for (const Tree& tree : trees_) sum += value_of(tree, row);
  return sum;
}

}  // namespace seqfuse::tuning
