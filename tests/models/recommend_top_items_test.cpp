// The running top-K over tiles against a sort of all scores.
#include <gtest/gtest.h>

#include <algorithm>

#include "serving/retrieval.h"
#include "tests/unit/memory_dataset.h"

namespace seqfuse::serving {
namespace {

TEST(TopItems, EqualASortAcrossTiles) {
  torch::manual_seed(4);
  for (const int64_t items : {3, 4096, 4100, 9000}) {  // 4100: the last tile is shorter than K
    const torch::Tensor rows = torch::randn({items + 1, 8}), queries = torch::randn({2, 8});
    const std::vector<std::vector<int64_t>> excluded{{1, 2, std::max<int64_t>(items - 1, 1)}, {}};
    const auto best = top_items(queries, rows, 10, excluded);
    for (int64_t b = 0; b < 2; ++b) {
      const torch::Tensor scores = rows.mv(queries[b]);
      std::vector<std::pair<float, int64_t>> sorted;
      for (int64_t item = 1; item <= items; ++item) {
        if (std::ranges::count(excluded[b], item) == 0) {
          sorted.emplace_back(-scores[item].item<float>(), item);
        }
      }
      std::sort(sorted.begin(), sorted.end());
      ASSERT_EQ(best[b].size(), std::min<size_t>(10, sorted.size()));
      for (size_t i = 0; i < best[b].size(); ++i) EXPECT_EQ(best[b][i].item, sorted[i].second);
    }
  }
}

TEST(UserBatch, HoldsTheNewestEvents) {
  const auto dataset = data::MemoryDataset::of_lengths({5, 3});
  const data::Batch batch = user_batch(dataset, 0, 2);
  EXPECT_EQ(batch.items, (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(batch.num_candidates, (std::vector<int64_t>{0}));
}

TEST(HistoryBatch, KnowsNothingOfTheUser) {
  const auto dataset = data::MemoryDataset::of_lengths({5, 3});
  data::Batch batch = history_batch(dataset, std::vector<int64_t>{1, 2, 3}, 2);
  EXPECT_EQ(batch.items, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(batch.actions, (std::vector<int64_t>{0, 0}));  // of 8 actions, 5 are 0
  EXPECT_EQ(batch.context, (std::vector<std::vector<int64_t>>{{0}}));
  append_candidates(batch, std::vector<int64_t>{5, 4});
  EXPECT_EQ(batch.items, (std::vector<int64_t>{2, 3, 5, 4}));
  EXPECT_EQ(batch.offsets, (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(batch.num_candidates, (std::vector<int64_t>{2}));
  EXPECT_EQ(batch.timestamps.size(), 4U);
}

}  // namespace
}  // namespace seqfuse::serving
