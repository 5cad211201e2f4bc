// Scans all items of a catalogue once: the rank of a given item for each query, or the best items.
// Works in tiles of scores, so memory does not grow with queries times items.
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
  // Appends the next query's items.
  void add(std::span<const ScoredItem> items) {
    items_.insert(items_.end(), items.begin(), items.end());
    offsets_.push_back(std::ssize(items_));
  }

 private:
  std::vector<ScoredItem> items_;
  std::vector<int64_t> offsets_ = {0};
};

// Item ids per query, ascending, each once. Ids outside 1..num_items are ignored.
using ItemLists = std::vector<std::vector<int64_t>>;

// Immutable: all methods may be called from several threads at once.
//
// An item's score is the dot product of its row with the query. On the CPU, products too close for
// rounding to tell apart are recomputed in float64, in order of the dimensions: results do not
// depend on batch, tile or number of threads, and equal rows have equal scores. On a GPU scores
// come from a full float32 matrix product; a process that allows TF32 must not call from several
// threads.
class Catalogue {
 public:
  // item_rows: [num_items + 1, D], float32 or float64, on the device of the scan; row 0 (unknown)
  // is never counted or returned.
  explicit Catalogue(const at::Tensor& item_rows);

  int64_t num_items() const { return rows_.size(0) - 1; }
  const at::Tensor& rows() const { return rows_; }

  // The rank of targets[b] among all items except excluded[b]; the target is never excluded. The
  // rank is 1 + the number of other items whose score is not lower: ties and NaN count against the
  // model. Target 0 (unknown) has rank num_items + 1. queries: [B, D], in the rows' dtype and on
  // their device. Returns int64 [B]; a GPU result stays on the GPU, and the host does not wait.
  at::Tensor ranks(const at::Tensor& queries, std::span<const int64_t> targets,
                   const ItemLists& excluded) const;

  // The k items with the highest score per query, except excluded[b]; fewer if there are fewer.
  // Ties: the lower item first (on a GPU it is undefined which tied items make it into the list).
  // Items with a NaN score are left out. allowed: if not empty, the only items to consider,
  // ascending, each once, all in 1..num_items.
  TopItems top(const at::Tensor& queries, int64_t k, const ItemLists& excluded,
               std::span<const int64_t> allowed = {}) const;

 private:
  at::Tensor rows_;
  double largest_norm_ = 0;  // over finite rows; on the CPU
};

}  // namespace seqfuse::training
