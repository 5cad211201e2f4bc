// Gradient-boosted regression trees: squared loss, exact splits, shrinkage, limits of depth and leaf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace seqfuse::tuning {

struct BoostingOptions {
  int trees = 300;
  int depth = 5;               // splits from the root to a leaf, at most
  int smallest_leaf = 2;       // examples of a leaf, at least
  double learning_rate = 0.1;  // what a tree adds is multiplied by this
  double penalty = 1;          // L2, of a leaf's value: sum of residuals / (examples + penalty)
};

// Rows of `columns` features each, one after the other.
struct FeatureRows {
  std::span<const double> values;
  size_t columns = 0;

  size_t rows() const { return columns == 0 ? 0 : values.size() / columns; }
  std::span<const double> row(size_t i) const { return values.subspan(i * columns, columns); }
};

class BoostedTrees {
 public:
  // A row goes left if its feature is at most the threshold. A leaf has feature -1.
  struct Node {
    int feature = -1;
    double threshold = 0;
    int left = 0, right = 0;  // indices of nodes of this tree
    double value = 0;         // of a leaf
  };
  using Tree = std::vector<Node>;  // the root first

  BoostedTrees() = default;
  // From trees of an earlier fit(). Throws Error if a node points to itself, before it or nowhere,
  // or names no feature.
  BoostedTrees(size_t columns, double base, std::vector<Tree> trees);

  // Replaces all trees. One target for each row; all finite; at least one row. Throws Error if not.
  void fit(const FeatureRows& features, std::span<const double> targets,
           const BoostingOptions& options);

  // row: of `columns` features.
  double predict(std::span<const double> row) const;

  size_t columns() const { return columns_; }
  double base() const { return base_; }  // the mean target
  const std::vector<Tree>& trees() const { return trees_; }

 private:
  size_t columns_ = 0;
  double base_ = 0;
  std::vector<Tree> trees_;
};

}  // namespace seqfuse::tuning
