// The running top-K over tiles against a sort of all scores, and what a history takes out of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "serving/retrieval.h"
#include "tests/models/fake_models.h"

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

TEST(Retrieve, LeavesOutTheWholeHistoryUnlessAsked) {
  // The score of an item is its number.
  models::hstu::FakeRetrievalModel model({}, torch::ones({1, 1}),
                                         torch::arange(6, torch::kFloat).unsqueeze(1));
  const RequestWindow window{.batch = {.users = {0}}, .seen = {5, 3}};
  const auto items = [&](int64_t top_k, bool include_seen) {
    std::vector<int64_t> result;
    for (const ScoredItem& scored : retrieve(model, window, top_k, include_seen)) {
      EXPECT_EQ(scored.score, static_cast<double>(scored.item));
      result.push_back(scored.item);
    }
    return result;
  };
  EXPECT_EQ(items(2, false), (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(items(2, true), (std::vector<int64_t>{5, 4}));
  EXPECT_EQ(items(std::numeric_limits<int64_t>::max(), false), (std::vector<int64_t>{4, 2, 1}));
}

}  // namespace
}  // namespace seqfuse::serving
