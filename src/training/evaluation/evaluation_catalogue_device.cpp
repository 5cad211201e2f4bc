// Ranks on a GPU: tiles of scores by matrix products; what is left out is counted apart and
// subtracted.
#include <algorithm>

#include "models/common/upload.h"
#include "training/evaluation/evaluation_catalogue.h"

namespace seqfuse::training {
namespace {

using torch::Tensor;

constexpr int64_t kTileScores = int64_t{64} << 20;  // scores that are held at a time

// Matrix products in full float32.
class NoTf32 {
 public:
  NoTf32() : before_(at::globalContext().allowTF32CuBLAS()) {
    at::globalContext().setAllowTF32CuBLAS(false);
  }
  ~NoTf32() { at::globalContext().setAllowTF32CuBLAS(before_); }
  NoTf32(const NoTf32&) = delete;
  NoTf32& operator=(const NoTf32&) = delete;

 private:
  bool before_;
};

}  // namespace

Tensor CatalogueRanks::ranks_on_device(const Tensor& queries, std::span<const int64_t> targets,
                                       const std::vector<std::vector<int64_t>>& excluded) const {
  const torch::NoGradGuard no_grad;
  const NoTf32 full_precision;
  const int64_t batch = std::ssize(targets), num_rows = rows_.size(0);
  // Pairs (query, item) that do not count; the target always does.
  std::vector<int64_t> excluded_queries, excluded_items;
  for (int64_t b = 0; b < batch; ++b) {
    for (const int64_t item : excluded[b]) {
      if (item == targets[b]) continue;
      excluded_queries.push_back(b);
      excluded_items.push_back(item);
    }
  }
  const std::vector<int64_t> target_list(targets.begin(), targets.end());
  Tensor target_items, left_out_queries, left_out_items;
  models::Upload upload(rows_.device());
  upload.add(target_list, target_items);
  upload.add(excluded_queries, left_out_queries);
  upload.add(excluded_items, left_out_items);
  upload.send();

  const int64_t tile = std::clamp<int64_t>(kTileScores / std::max<int64_t>(batch, 1), 1, num_rows);
  const auto for_each_tile = [&](auto&& body) {
    for (int64_t begin = 0; begin < num_rows; begin += tile) {
      const int64_t end = std::min(num_rows, begin + tile);
      body(begin, end, queries.mm(rows_.slice(0, begin, end).t()));
    }
  };
  // Item ids as columns of a tile, and whether they are in it.
  const auto columns = [](const Tensor& items, int64_t begin, int64_t end) {
    return std::pair((items - begin).clamp(0, end - begin - 1),
                     items.ge(begin).logical_and(items.lt(end)));
  };
  Tensor target_scores = queries.new_zeros({batch});
  for_each_tile([&](int64_t begin, int64_t end, const Tensor& scores) {
    const auto [column, inside] = columns(target_items, begin, end);
    target_scores =
        at::where(inside, scores.gather(1, column.unsqueeze(1)).squeeze(1), target_scores);
  });
  Tensor ranks = torch::zeros_like(target_items);
  for_each_tile([&](int64_t begin, int64_t end, const Tensor& scores) {
    // NaN is not below anything, so it counts.
    Tensor counted = scores.lt(target_scores.unsqueeze(1)).logical_not();
    if (begin == 0) counted.select(1, 0).zero_();
    ranks.add_(counted.sum(1));
    const auto [column, inside] = columns(left_out_items, begin, end);
    const Tensor score = scores.view(-1).index_select(0, left_out_queries * (end - begin) + column);
    const Tensor below = score.lt(target_scores.index_select(0, left_out_queries));
    ranks.index_add_(0, left_out_queries, inside.logical_and(below.logical_not()).to(torch::kLong),
                     -1);
  });
  return at::where(target_items.eq(0), num_rows, ranks);
}

}  // namespace seqfuse::training
