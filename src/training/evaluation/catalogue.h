// One scan over all items of a catalogue: the rank of a given item for each query, or the best
// items. Memory does not grow with queries times items: tiles of scores are read and dropped.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>
#include <vector>

namespace seqfuse::training {

struct ScoredItem {
  int64_t item = 0;
  double score = 0;

  bool operator==(const ScoredItem&) const = default;
};

// The best items of each query, best first.
class TopItems {
 public:
  int64_t size() const { return std::ssize(offsets_) - 1; }  // queries
  std::span<const ScoredItem> operator[](int64_t query) const {
    return std::span(items_).subspan(offsets_[query], offsets_[query + 1] - offsets_[query]);
  }
  // The next query's.
  void add(std::span<const ScoredItem> items) {
    items_.insert(items_.end(), items.begin(), items.end());
    offsets_.push_back(std::ssize(items_));
  }

 private:
  std::vector<ScoredItem> items_;
  std::vector<int64_t> offsets_ = {0};
};

// Item ids for each query, ascending, each once. Ids outside 1..num_items are ignored.
using ItemLists = std::vector<std::vector<int64_t>>;

// Immutable: all methods may be called from several threads at once.
//
// The score of an item is the dot product of its row with the query. On the CPU, products that are
// closer than rounding can tell are compared again in float64, in the order of the dimensions:
// results depend neither on the batch, nor on the tile, nor on the number of threads, and equal rows
// have equal scores. On a GPU scores are compared as one matrix product in full float32 gives them;
// a process that allows TF32 must not call from several threads.
class Catalogue {
 public:
  // item_rows: [num_items + 1, D], float32 or float64, on the device of the scan; row 0 (unknown)
  // is never counted or returned.
  explicit Catalogue(const at::Tensor& item_rows);

  int64_t num_items() const { return rows_.size(0) - 1; }
  const at::Tensor& rows() const { return rows_; }

  // Rank of targets[b] among all items less excluded[b]; the target itself always stays. 1 + the
  // other items whose score is not lower: ties and NaN count against the model. Target 0 (unknown)
  // has the rank num_items + 1. queries: [B, D], of the rows' dtype and device.
  // Returned as int64 [B]; on a GPU it stays there, and the host does not wait.
  at::Tensor ranks(const at::Tensor& queries, std::span<const int64_t> targets,
                   const ItemLists& excluded) const;

  // The k items of highest score for each query, less excluded[b]; fewer where there are fewer.
  // Equal scores: the lower item first (on a GPU, which of several equal scores at the end of a
  // list are in it is not defined). Items whose score is NaN are left out. allowed: if not empty,
  // the only items that are looked at, ascending, each once, all in 1..num_items.
  TopItems top(const at::Tensor& queries, int64_t k, const ItemLists& excluded,
               std::span<const int64_t> allowed = {}) const;

 private:
  at::Tensor rows_;
  double largest_norm_ = 0;  // of finite rows
};

}  // namespace seqfuse::training
