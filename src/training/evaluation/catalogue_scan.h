// The scans behind Catalogue: one for the CPU, one for a GPU.
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "training/evaluation/catalogue.h"

namespace seqfuse::training {

// The items that are scanned, in order: all of a catalogue, or those allowed. Refers to its
// arguments.
class ScannedItems {
 public:
  ScannedItems(const at::Tensor& rows, std::span<const int64_t> allowed)
      : rows_(rows), allowed_(allowed) {
    SEQFUSE_CHECK(allowed.empty() || (allowed.front() >= 1 && allowed.back() < rows.size(0)),
                  "allowed items must be in 1..{}", rows.size(0) - 1);
  }

  int64_t size() const { return allowed_.empty() ? rows_.size(0) - 1 : std::ssize(allowed_); }
  int64_t at(int64_t place) const { return allowed_.empty() ? place + 1 : allowed_[place]; }

  // The index of an item, or -1.
  int64_t place_of(int64_t item) const {
    if (item < 1 || item >= rows_.size(0)) return -1;
    if (allowed_.empty()) return item - 1;
    const auto found = std::lower_bound(allowed_.begin(), allowed_.end(), item);
    return found != allowed_.end() && *found == item ? found - allowed_.begin() : -1;
  }

  // [end - begin, D]
  at::Tensor rows(int64_t begin, int64_t end) const {
    if (allowed_.empty()) return rows_.slice(0, begin + 1, end + 1);
    const auto ids = allowed_.subspan(begin, end - begin);
    return rows_.index_select(
        0, at::from_blob(const_cast<int64_t*>(ids.data()), {std::ssize(ids)}, at::kLong)
               .to(rows_.device()));
  }

 private:
  const at::Tensor& rows_;
  std::span<const int64_t> allowed_;
};

// The order of results.
inline bool better(const ScoredItem& a, const ScoredItem& b) {
  return std::pair(-a.score, a.item) < std::pair(-b.score, b.item);
}

// Arguments as in Catalogue. rows, queries and excluded belong together; ranks_on_cpu writes
// queries.size(0) ranks.
void ranks_on_cpu(const at::Tensor& rows, double largest_norm, const at::Tensor& queries,
                  std::span<const int64_t> targets, std::span<const std::vector<int64_t>> excluded,
                  int64_t* ranks);
void top_on_cpu(const at::Tensor& rows, double largest_norm, const at::Tensor& queries, int64_t k,
                std::span<const std::vector<int64_t>> excluded, const ScannedItems& items,
                TopItems& top);

// Run on the tensors' device, whichever it is. scores_at_once: the most scores in
// memory, which bounds the tile of items.
inline constexpr int64_t kDeviceScores = int64_t{64} << 20;
at::Tensor ranks_on_device(const at::Tensor& rows, const at::Tensor& queries,
                           std::span<const int64_t> targets, const ItemLists& excluded,
                           int64_t scores_at_once = kDeviceScores);
void top_on_device(const at::Tensor& rows, const at::Tensor& queries, int64_t k,
                   const ItemLists& excluded, const ScannedItems& items, TopItems& top,
                   int64_t scores_at_once = kDeviceScores);

}  // namespace seqfuse::training
