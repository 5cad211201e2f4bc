// seqfuse recommend: users, histories, candidates, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tests/cli/trained_runs.h"

namespace seqfuse {
namespace {
using nlohmann::json;
using testing::HasSubstr;

json recommend(const std::string& arguments) {
  const Outcome outcome = run_seqfuse("recommend --json " + arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return json::parse(outcome.out);
}

TEST(Recommend, UserGetsUnseenItemsBestFirst) {
  const json items = recommend(TrainedRuns::get().retrieval() + " --user u0 --top-k 20")["items"];
  ASSERT_EQ(items.size(), 7U);  // u0 has had item0 to item7 of 15
  std::set<std::string> names;
  for (size_t i = 0; i < items.size(); ++i) {
    names.insert(items[i]["item"]);
    EXPECT_LE(items[i]["score"], items[i > 0 ? i - 1 : 0]["score"]);
  }
  EXPECT_EQ(names, (std::set<std::string>{"item8", "item9", "item10", "item11", "item12", "item13",
                                          "item14"}));
}

TEST(Recommend, SeenItemsOnRequest) {
  EXPECT_EQ(
      recommend(TrainedRuns::get().retrieval() + " --user u0 --top-k 20 --include-seen")["items"]
          .size(),
      15U);
}

TEST(Recommend, HistoryIsReadAsIds) {
  const json items =
      recommend(TrainedRuns::get().retrieval() + " --history 'item3, item4' --top-k 3")["items"];
  ASSERT_EQ(items.size(), 3U);
  for (const json& entry : items) {
    EXPECT_NE(entry["item"], "item3");
    EXPECT_NE(entry["item"], "item4");
  }
}

TEST(Recommend, TableHasRankItemScoreTitle) {
  const Outcome outcome =
      run_seqfuse("recommend " + TrainedRuns::get().retrieval() + " --user u1 --top-k 2");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("rank"));
  EXPECT_THAT(outcome.out, HasSubstr("title"));
}

TEST(Recommend, UnknownIdsAreRefusedWithAnExample) {
  const Outcome user = run_seqfuse("recommend " + TrainedRuns::get().retrieval() + " --user 99");
  EXPECT_EQ(user.code, 2);
  EXPECT_THAT(user.err, HasSubstr("'99'"));
  EXPECT_THAT(user.err, HasSubstr("such as 'u"));
  const Outcome item =
      run_seqfuse("recommend " + TrainedRuns::get().retrieval() + " --history item1,nothing");
  EXPECT_EQ(item.code, 2);
  EXPECT_THAT(item.err, HasSubstr("'nothing'"));
}

TEST(Recommend, NeedsEitherAUserOrAHistory) {
  const std::string run = TrainedRuns::get().retrieval();
  EXPECT_EQ(run_seqfuse("recommend " + run).code, 2);
  EXPECT_EQ(run_seqfuse("recommend " + run + " --user u0 --history item1").code, 2);
}

TEST(Recommend, RankingRunsOrderCandidates) {
  const std::string run = TrainedRuns::get().ranking();
  const Outcome without = run_seqfuse("recommend " + run + " --user u0");
  EXPECT_EQ(without.code, 2);
  EXPECT_THAT(without.err, HasSubstr("--candidates"));
  const json items = recommend(run + " --user u0 --candidates item9,item1,item5")["items"];
  ASSERT_EQ(items.size(), 3U);
  EXPECT_GE(items[0]["expected class"], items[1]["expected class"]);
  // A candidate's score does not depend on its neighbours.
  const json alone = recommend(run + " --user u0 --candidates item5")["items"];
  for (const json& entry : items) {
    if (entry["item"] == "item5") {
      EXPECT_NEAR(entry["expected class"].get<double>(), alone[0]["expected class"].get<double>(),
                  1e-5);
    }
  }
}

}  // namespace
}  // namespace seqfuse
