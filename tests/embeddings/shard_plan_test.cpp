#include "embeddings/shard_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace seqfuse::embeddings::shard_plan_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

at::Tensor ids_from(const std::vector<int64_t>& ids) {
  return torch::tensor(ids, torch::kLong);
}

TEST(ShardPlan, EveryRowHasOneOwner) {
  const int64_t rows = (1 << 20) + 17;  // more than one block
  for (const int64_t processes : {1, 2, 3, 8}) {
    std::vector<at::Tensor> all;
    for (int64_t rank = 0; rank < processes; ++rank) {
      all.push_back(ids_of(rank, processes, rows));
      EXPECT_TRUE(owner_of(all.back(), processes).eq(rank).all().item<bool>());
      EXPECT_TRUE(all.back().diff().gt(0).all().item<bool>());
    }
    EXPECT_TRUE(std::get<0>(at::cat(all).sort()).equal(torch::arange(rows)));
  }
}

TEST(ShardPlan, IdsThatFollowAPatternSpreadEvenly) {
  const at::Tensor counting = torch::arange(80'000, torch::kLong);
  const std::vector<std::pair<const char*, at::Tensor>> patterns = {
      {"lowest", counting},
      {"multiples of 8", counting * 8},
      {"multiples of 1024", counting * 1024},
      {"newest of many", counting + 2'000'000'000}};
  for (const auto& [name, ids] : patterns) {
    const at::Tensor counts = at::bincount(owner_of(ids, 8), {}, 8);
    EXPECT_GT(counts.min().item<int64_t>(), 9'500) << name;
    EXPECT_LT(counts.max().item<int64_t>(), 10'500) << name;
  }
}

TEST(ShardPlan, EachIdIsAskedForOnceOfItsOwner) {
  const at::Tensor ids = ids_from({9, 2, 9, 0, 40, 2, 2, 17});
  const RequestPlan plan = plan_requests(ids, 3, 50, "item");
  EXPECT_TRUE(plan.ids.equal(ids_from({0, 2, 9, 17, 40})));
  const at::Tensor asked = plan.ids.index_select(0, plan.by_owner);
  int64_t begin = 0;
  for (int64_t owner = 0; owner < 3; ++owner) {
    const at::Tensor of_owner = asked.slice(0, begin, begin + plan.counts[owner]);
    EXPECT_TRUE(owner_of(of_owner, 3).eq(owner).all().item<bool>());
    EXPECT_TRUE(of_owner.diff().gt(0).all().item<bool>());
    begin += plan.counts[owner];
  }
  EXPECT_EQ(begin, 5);
}

TEST(ShardPlan, NoIdsAndIdsOfOneOwner) {
  EXPECT_THAT(plan_requests(ids_from({}), 3, 50, "item").counts, ElementsAre(0, 0, 0));
  const at::Tensor skewed = ids_of(1, 3, 50);
  EXPECT_THAT(plan_requests(skewed, 3, 50, "item").counts, ElementsAre(0, skewed.numel(), 0));
}

TEST(ShardPlan, IdsOutsideTheTableAreNamed) {
  const auto error = [](int64_t id) {
    try {
      plan_requests(ids_from({3, id, 4}), 2, 50, "item");
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error(50), HasSubstr("table item: id 50 is not in it; expected ids of at least 0 and "
                                   "below 50"));
  EXPECT_THAT(error(-1), HasSubstr("id -1 is not in it"));
  EXPECT_EQ(error(49), "no error");
}

}  // namespace
}  // namespace seqfuse::embeddings::shard_plan_test
