// The rank of one item per query among a whole catalogue, in memory that does not grow with queries
// times items: tiles of scores are counted and dropped.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>
#include <vector>

namespace seqfuse::training {

class CatalogueRanks {
 public:
  // item_rows: [num_items + 1, D], float32 or float64; row 0 (unknown) is never ranked.
  explicit CatalogueRanks(const torch::Tensor& item_rows);

  // Rank of targets[b] by <queries[b], row> among items 1..num_items less excluded[b] (ascending;
  // the target itself always stays). 1 + the items whose score is not lower: ties and NaN count
  // against the model. Scores closer than rounding can tell are compared again in float64 in a
  // fixed order, so ranks depend neither on the batch nor on the tile. Target 0 (unknown) has the
  // rank num_items + 1. queries: [B, D], of item_rows' dtype and device.
  // Returned as int64 [B]. On a GPU it stays there, the host does not wait, and scores are compared
  // as the same matrix product gives them, in full float32.
  torch::Tensor ranks(const torch::Tensor& queries, std::span<const int64_t> targets,
                      const std::vector<std::vector<int64_t>>& excluded) const;

 private:
  torch::Tensor ranks_on_cpu(const torch::Tensor& queries, std::span<const int64_t> targets,
                             const std::vector<std::vector<int64_t>>& excluded) const;
  torch::Tensor ranks_on_device(const torch::Tensor& queries, std::span<const int64_t> targets,
                                const std::vector<std::vector<int64_t>>& excluded) const;
  // Items of a tile that are not below each target.
  template <class T>
  std::vector<int64_t> count_tile(const torch::Tensor& scores, int64_t tile_begin,
                                  const torch::Tensor& queries, std::span<const int64_t> targets,
                                  const std::vector<std::vector<int64_t>>& excluded) const;

  torch::Tensor rows_;
  double largest_norm_ = 0;
};

}  // namespace seqfuse::training
