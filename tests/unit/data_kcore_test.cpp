// Filters by the number of events, counted once or again and again.
#include <map>
#include <set>

#include "base/random.h"
#include "tests/unit/preprocess_run.h"

namespace seqfuse::data::data_kcore_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

using Pairs = std::vector<std::pair<int, int>>;

std::string as_log(const Pairs& pairs) {
  std::string log = "user,item,time\n";
  for (size_t i = 0; i < pairs.size(); ++i) {
    log += fmt::format("{},{},{}\n", pairs[i].first, pairs[i].second, i);
  }
  return log;
}

Pairs k_core(Pairs pairs, int of_user, int of_item) {
  for (;;) {
    std::map<int, int> users, items;
    for (const auto& [user, item] : pairs) {
      ++users[user];
      ++items[item];
    }
    const size_t removed = std::erase_if(pairs, [&](const auto& pair) {
      return users[pair.first] < of_user || items[pair.second] < of_item;
    });
    if (removed == 0) return pairs;
  }
}

TEST_F(PreprocessTest, FiltersRepeatUntilNoneHasFewer) {
  // Item 3 is rare; without it user 3 has one event, and without that item 2 is rare.
  const std::string log = as_log({{1, 1}, {1, 1}, {2, 1}, {2, 1}, {2, 2}, {3, 2}, {3, 3}});
  options_.min_user_events = options_.min_item_events = 2;
  const auto once = run_csv(log);
  EXPECT_EQ(once->num_users(), 3);
  EXPECT_EQ(once->num_items(), 2);
  EXPECT_THAT(items(*once, 2), ElementsAre("2"));
  EXPECT_THAT(result_.manifest.rules, Contains(HasSubstr("are left out: counted once")));
  options_.iterative = true;
  const auto core = run_csv(log);
  EXPECT_EQ(core->num_users(), 2);
  EXPECT_EQ(core->num_items(), 1);
  EXPECT_THAT(items(*core, 1), ElementsAre("1", "1"));
  EXPECT_THAT(result_.manifest.rules,
              Contains(HasSubstr("counted again until none had fewer, after 3 rounds")));
}

TEST_F(PreprocessTest, KCoreOfRandomLogs) {
  options_.iterative = true;
  Random random(8);
  for (int round = 0; round < 20; ++round) {
    Pairs pairs;
    for (int i = 0; i < 400; ++i) {
      pairs.emplace_back(random.below(80), random.below(random.below(120) + 1));
    }
    options_.min_user_events = static_cast<int64_t>(random.below(5)) + 1;
    options_.min_item_events = static_cast<int64_t>(random.below(5)) + 2;
    const Pairs core = k_core(pairs, static_cast<int>(options_.min_user_events),
                              static_cast<int>(options_.min_item_events));
    if (core.empty()) {
      EXPECT_THAT(refused_csv(as_log(pairs)), HasSubstr("no user is left"));
      continue;
    }
    const auto dataset = run_csv(as_log(pairs));
    std::map<int, std::vector<std::string>> expected;
    std::set<int> expected_items;
    for (const auto& [user, item] : core) {
      expected[user].push_back(std::to_string(item));
      expected_items.insert(item);
    }
    ASSERT_EQ(dataset->num_users(), std::ssize(expected));
    EXPECT_EQ(dataset->num_items(), std::ssize(expected_items));
    int64_t row = 0;
    for (const auto& [user, history] : expected) {
      EXPECT_EQ(dataset->user_id(row), std::to_string(user));
      EXPECT_EQ(items(*dataset, row++), history);
    }
  }
}

TEST_F(PreprocessTest, AKCoreOfNothing) {
  options_.iterative = true;
  options_.min_user_events = 3;
  options_.min_item_events = 3;
  EXPECT_THAT(refused_csv(as_log({{1, 1}, {1, 2}, {2, 2}})), HasSubstr("--min-item-events 3"));
}

}  // namespace
}  // namespace seqfuse::data::data_kcore_test
