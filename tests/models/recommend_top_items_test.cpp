// The best items over tiles against a sort of all scores, and items excluded by the history.
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "serving/recommendations.h"
#include "tests/models/fake_models.h"
#include "training/evaluation/catalogue.h"
#include "training/evaluation/catalogue_scan.h"

namespace seqfuse::serving::recommend_top_items_test {
namespace {

using training::Catalogue;

// For one query: all items by exact score, then by item.
std::vector<int64_t> sorted_items(const torch::Tensor& rows, const torch::Tensor& query,
                                  const std::vector<int64_t>& excluded,
                                  const std::vector<int64_t>& allowed = {}) {
  const torch::Tensor scores = rows.to(torch::kDouble).mv(query.to(torch::kDouble));
  std::vector<std::pair<double, int64_t>> sorted;
  for (int64_t item = 1; item < rows.size(0); ++item) {
    const bool known = allowed.empty() || std::ranges::binary_search(allowed, item);
    if (known && std::ranges::count(excluded, item) == 0) {
      sorted.emplace_back(-scores[item].item<double>(), item);
    }
  }
  std::sort(sorted.begin(), sorted.end());
  std::vector<int64_t> items;
  for (const auto& [score, item] : sorted) items.push_back(item);
  return items;
}

std::vector<int64_t> items_of(std::span<const ScoredItem> scored) {
  std::vector<int64_t> items;
  for (const ScoredItem& each : scored) items.push_back(each.item);
  return items;
}

// The scan of a GPU, which also runs on the CPU, in many tiles, as of a large catalogue.
TopItems top_in_tiles(const torch::Tensor& rows, const torch::Tensor& queries, int64_t k,
                      const ItemLists& excluded, const std::vector<int64_t>& allowed = {}) {
  const training::ScannedItems items(rows, allowed);
  TopItems top;
  training::top_on_device(rows, queries, std::min(k, items.size()), excluded, items, top,
                          /*scores_at_once=*/100 * queries.size(0));
  return top;
}

// Every device of this machine.
std::vector<at::Device> devices() {
  std::vector<at::Device> all{at::kCPU};
  if (torch::cuda::is_available()) all.emplace_back(at::kCUDA);
  return all;
}

// The best k items of every query, by Catalogue on each device and in tiles, are a sort's first.
void expect_sorted(const torch::Tensor& rows, const torch::Tensor& queries, int64_t k,
                   const ItemLists& excluded, const std::vector<int64_t>& allowed = {}) {
  const auto expect = [&](const TopItems& best, const std::string& how) {
    ASSERT_EQ(best.size(), queries.size(0));
    for (int64_t b = 0; b < best.size(); ++b) {
      std::vector<int64_t> expected = sorted_items(rows, queries[b], excluded[b], allowed);
      expected.resize(std::min<size_t>(k, expected.size()));
      EXPECT_EQ(items_of(best[b]), expected) << rows.size(0) - 1 << " items, " << how;
    }
  };
  for (const at::Device device : devices()) {
    expect(Catalogue(rows.to(device)).top(queries.to(device), k, excluded, allowed), device.str());
  }
  expect(top_in_tiles(rows, queries, k, excluded, allowed), "in tiles");
}

TEST(TopItems, EqualASortAcrossTiles) {
  torch::manual_seed(4);
  for (const int64_t items : {3, 1024, 1025, 4096, 4100, 9000}) {  // the last tile may be partial
    const torch::Tensor rows = torch::randn({items + 1, 8}), queries = torch::randn({2, 8});
    expect_sorted(rows, queries, 10, {{1, 2, std::max<int64_t>(items - 1, 3)}, {}});
  }
}

TEST(TopItems, AllowedItemsAlone) {
  torch::manual_seed(5);
  const torch::Tensor rows = torch::randn({5001, 8}), queries = torch::randn({3, 8});
  std::vector<int64_t> allowed;
  for (int64_t item = 2; item <= 5000; item += 3) allowed.push_back(item);
  expect_sorted(rows, queries, 7, {{}, {2, 3, 5000}, allowed}, allowed);  // the last finds none
}

TEST(TopItems, EqualScoresAreInTheOrderOfItemsAndNaNIsLeftOut) {
  torch::Tensor rows = torch::ones({3001, 4});
  rows[1].fill_(std::numeric_limits<float>::quiet_NaN());
  rows[2000].fill_(2);
  const TopItems best = Catalogue(rows).top(torch::ones({1, 4}), 4, {{3}});
  EXPECT_EQ(items_of(best[0]), (std::vector<int64_t>{2000, 2, 4, 5}));
  EXPECT_EQ(best[0][0].score, 8);
  const torch::Tensor nan = torch::full({1, 4}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(Catalogue(rows).top(nan, 4, {{}})[0].empty());
}

TEST(TopItems, DoNotDependOnTheBatchAndAgreeWithRanks) {
  torch::manual_seed(6);
  constexpr int64_t kQueries = 600, kItems = 2500;  // two blocks of queries, three tiles
  const torch::Tensor rows = torch::randn({kItems + 1, 32}), queries = torch::randn({kQueries, 32});
  const Catalogue catalogue(rows);
  const ItemLists none(kQueries);
  const TopItems all = catalogue.top(queries, 5, none);
  for (const int64_t b : {int64_t{0}, int64_t{511}, int64_t{512}, kQueries - 1}) {
    const TopItems alone = catalogue.top(queries.slice(0, b, b + 1), 5, {{}});
    ASSERT_EQ(alone[0].size(), 5U);
    EXPECT_TRUE(std::ranges::equal(alone[0], all[b])) << b;
  }
  for (int64_t place = 0; place < 5; ++place) {
    std::vector<int64_t> targets;
    for (int64_t b = 0; b < kQueries; ++b) targets.push_back(all[b][place].item);
    const torch::Tensor ranks = catalogue.ranks(queries, targets, none);
    EXPECT_TRUE(ranks.eq(place + 1).all().item<bool>()) << place;
  }
}

TEST(Retrieve, LeavesOutTheWholeHistoryUnlessAsked) {
  // An item's score is its number.
  const Predictor predictor(std::make_shared<models::hstu::FakeRetrievalModel>(
                                models::hstu::ModelSpec{}, torch::ones({1, 1}),
                                torch::arange(6, torch::kFloat).unsqueeze(1)),
                            at::kCPU);
  const RequestWindow window{.batch = {.users = {0}}, .seen = {5, 3, 5}};
  const auto items = [&](int64_t top_k, bool include_seen) {
    std::vector<int64_t> result;
    for (const RankedItem& row : retrieve(predictor, window, top_k, include_seen)) {
      EXPECT_EQ(row.scores.front().second, static_cast<double>(row.item));
      result.push_back(row.item);
    }
    return result;
  };
  EXPECT_EQ(items(2, false), (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(items(2, true), (std::vector<int64_t>{5, 4}));
  EXPECT_EQ(items(std::numeric_limits<int64_t>::max(), false), (std::vector<int64_t>{4, 2, 1}));
}

}  // namespace
}  // namespace seqfuse::serving::recommend_top_items_test
