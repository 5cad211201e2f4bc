#include "data/batch/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "tests/unit/memory_dataset.h"

namespace seqfuse::data {

bool operator==(const Sample& a, const Sample& b) {
  return a.user == b.user && a.begin == b.begin && a.end == b.end &&
         a.num_candidates == b.num_candidates;
}
void PrintTo(const Sample& s, std::ostream* out) {
  *out << "{user " << s.user << ", [" << s.begin << ", " << s.end << "), " << s.num_candidates
       << "}";
}

}  // namespace seqfuse::data

namespace seqfuse::data::split_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(LeaveOneOut, RetrievalTestsTheLastEventAndValidatesTheOneBefore) {
  const auto dataset = MemoryDataset::of_lengths({10, 3, 2, 1, 0});
  const Split split = make_split(dataset, {.max_history = 4});
  EXPECT_THAT(split.test, ElementsAre(Sample{0, 5, 10, 1}, Sample{1, 0, 3, 1}, Sample{2, 0, 2, 1}));
  EXPECT_THAT(split.validation, ElementsAre(Sample{0, 4, 9, 1}, Sample{1, 0, 2, 1}));
  EXPECT_THAT(split.train, ElementsAre(Sample{0, 4, 9, 0}, Sample{1, 0, 2, 0}));
  EXPECT_EQ(split.skipped_users, 2);
}

TEST(LeaveOneOut, HeldOutValidationIsNotTrainedOn) {
  const auto dataset = MemoryDataset::of_lengths({10, 3});
  const Split split = make_split(dataset, {.max_history = 4, .hold_out_validation = true});
  EXPECT_THAT(split.train, ElementsAre(Sample{0, 3, 8, 0}));
  EXPECT_THAT(split.rule, HasSubstr("validation and not in training"));
}

TEST(LeaveOneOut, OldestDropsAUsersLaterEvents) {
  const auto dataset = MemoryDataset::of_lengths({10});
  const Split split = make_split(dataset, {.max_history = 4, .truncate = Truncate::oldest});
  EXPECT_THAT(split.test, ElementsAre(Sample{0, 0, 5, 1}));
  EXPECT_THAT(split.train, ElementsAre(Sample{0, 0, 4, 0}));
}

TEST(LeaveOneOut, RandomTrainsOnAnyWindowAndTestsOnTheNewest) {
  const auto dataset = MemoryDataset::of_lengths({10, 5, 3});
  const Split newest = make_split(dataset, {.max_history = 4});
  const Split random = make_split(dataset, {.max_history = 4, .truncate = Truncate::random});
  EXPECT_EQ(random.test, newest.test);
  EXPECT_EQ(random.validation, newest.validation);
  EXPECT_EQ(random.train, newest.train);
  const auto slack = [](const Sample& sample) { return sample.slack; };
  EXPECT_THAT(random.train, ElementsAre(testing::ResultOf(slack, 4), testing::ResultOf(slack, 0),
                                        testing::ResultOf(slack, 0)));
  EXPECT_THAT(random.test, testing::Each(testing::ResultOf(slack, 0)));
  EXPECT_THAT(newest.train, testing::Each(testing::ResultOf(slack, 0)));
  EXPECT_THAT(random.rule,
              HasSubstr("in training any consecutive ones of each user, in evaluation the newest"));
}

TEST(LeaveOneOut, RankingTestsTheLastCandidates) {
  const auto dataset = MemoryDataset::of_lengths({20, 7, 3});
  const Split split =
      make_split(dataset, {.retrieval = false, .max_history = 5, .max_candidates = 3});
  EXPECT_THAT(split.test, ElementsAre(Sample{0, 12, 20, 3}, Sample{1, 0, 7, 3}));
  EXPECT_THAT(split.validation, ElementsAre(Sample{0, 9, 17, 3}, Sample{1, 0, 4, 3}));
  EXPECT_THAT(split.train, ElementsAre(Sample{0, 9, 17, 3}, Sample{1, 0, 4, 3}));
  EXPECT_EQ(split.skipped_users, 1);
}

TEST(UserSplit, RankingSkipsUsersWithoutHistoryAndKeepsOrder) {
  // The published rule: users with at most max_candidates events are dropped before the 70/30 cut.
  const auto dataset = MemoryDataset::of_lengths({9, 2, 4, 5, 3, 6, 30, 8, 9, 9, 9, 9});
  const Split split = make_split(dataset, {.kind = SplitKind::user,
                                           .retrieval = false,
                                           .max_history = 4,
                                           .max_candidates = 2,
                                           .train_fraction = 0.7});
  EXPECT_EQ(split.skipped_users, 1);
  ASSERT_EQ(split.train.size(), 7);  // 0.7 of 11
  ASSERT_EQ(split.test.size(), 4);
  EXPECT_EQ(split.train[0], (Sample{0, 3, 9, 2}));
  EXPECT_EQ(split.train[1], (Sample{2, 0, 4, 2}));
  EXPECT_EQ(split.train[5], (Sample{6, 24, 30, 2}));
  EXPECT_EQ(split.test[0], (Sample{8, 3, 9, 2}));
  EXPECT_THAT(split.validation, ElementsAre(split.train[6]));
}

TEST(UserSplit, OldestKeepsThePublishedPrefix) {
  const auto dataset = MemoryDataset::of_lengths({30, 30});
  SplitOptions options{.kind = SplitKind::user,
                       .retrieval = false,
                       .max_history = 4,
                       .max_candidates = 2,
                       .truncate = Truncate::oldest,
                       .train_fraction = 0.5};
  EXPECT_THAT(make_split(dataset, options).test, ElementsAre(Sample{1, 0, 6, 2}));
  options.max_candidates = 0;
  EXPECT_THAT(make_split(dataset, options).test, ElementsAre(Sample{1, 0, 4, 0}));
  options.retrieval = true;
  EXPECT_THAT(make_split(dataset, options).train, ElementsAre(Sample{0, 0, 5, 0}));
  EXPECT_THAT(make_split(dataset, options).test, ElementsAre(Sample{1, 0, 5, 1}));
}

TEST(UserSplit, HeldOutValidationIsATenthOfTheTrainingUsers) {
  const auto dataset = MemoryDataset::of_lengths(std::vector<int64_t>(100, 5));
  const Split split = make_split(dataset, {.kind = SplitKind::user, .hold_out_validation = true});
  EXPECT_EQ(split.train.size(), 63);
  EXPECT_EQ(split.validation.size(), 7);
  EXPECT_EQ(split.test.size(), 30);
  EXPECT_EQ(split.validation.front().user, 63);
}

TEST(Temporal, CutsAllUsersAtOneTime) {
  // Times: user 0 has 0, 10, ..., 90; user 1 has 1, 11, ..., 41; user 2 has 2.
  const auto dataset = MemoryDataset::of_lengths({10, 5, 1});
  const Split split =
      make_split(dataset, {.kind = SplitKind::temporal, .max_history = 3, .train_fraction = 0.5});
  // 8 = 4 + 3 + 1 of 16 events are before time 31.
  EXPECT_THAT(split.rule, HasSubstr("before time 31"));
  EXPECT_THAT(split.train, ElementsAre(Sample{0, 0, 4, 0}, Sample{1, 0, 3, 0}));
  EXPECT_THAT(split.validation, ElementsAre(Sample{0, 0, 4, 1}, Sample{1, 0, 3, 1}));
  EXPECT_THAT(split.test, ElementsAre(Sample{0, 1, 5, 1}, Sample{1, 0, 4, 1}));
  EXPECT_EQ(split.skipped_users, 1);
}

TEST(Temporal, EqualTimesFallOnOneSide) {
  const auto dataset = MemoryDataset::of_lengths({6}, /*step=*/0);
  const Split split = make_split(dataset, {.kind = SplitKind::temporal});
  EXPECT_THAT(split.train, IsEmpty());
  EXPECT_THAT(split.test, IsEmpty());
  EXPECT_EQ(split.skipped_users, 1);
}

TEST(Split, RefusesWhatCannotBe) {
  const MemoryDataset no_times({{.items = {1, 2, 3}}});
  const auto refused = [&](const SplitOptions& options, const char* text) {
    EXPECT_THAT([&] { make_split(no_times, options); },
                testing::ThrowsMessage<UsageError>(HasSubstr(text)));
  };
  refused({.kind = SplitKind::temporal}, "needs timestamps");
  refused({.max_history = 0}, "max_history_seqlen is 0");
  refused({.max_candidates = -1}, "max_num_candidates is -1");
  refused({.kind = SplitKind::user, .train_fraction = 1}, "train_fraction is 1");
}

TEST(Split, EmptyDatasetGivesNoWindows) {
  const MemoryDataset empty({});
  for (const auto kind : {SplitKind::leave_one_out, SplitKind::user}) {
    const Split split = make_split(empty, {.kind = kind});
    EXPECT_THAT(split.train, IsEmpty());
    EXPECT_THAT(split.validation, IsEmpty());
    EXPECT_THAT(split.test, IsEmpty());
    EXPECT_EQ(split.skipped_users, 0);
  }
}

// Properties of every split of random data.
class SplitProperties : public testing::TestWithParam<SplitKind> {};

TEST_P(SplitProperties, HoldForRandomData) {
  Random random(7);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<int64_t> lengths(random.below(30));
    for (int64_t& length : lengths) length = static_cast<int64_t>(random.below(25));
    const auto dataset = MemoryDataset::of_lengths(lengths);
    if (dataset.manifest().num_events == 0 && GetParam() == SplitKind::temporal) continue;
    const SplitOptions options{
        .kind = GetParam(),
        .retrieval = random.below(2) == 0,
        .max_history = 1 + static_cast<int64_t>(random.below(12)),
        .max_candidates = static_cast<int64_t>(random.below(5)),
        .truncate = random.below(2) == 0 ? Truncate::newest : Truncate::oldest,
        .train_fraction = 0.05 + 0.9 * random.unit(),
        .hold_out_validation = random.below(2) == 0};
    const Split split = make_split(dataset, options);
    const int64_t candidates = options.retrieval ? 0 : options.max_candidates;
    const int64_t targets = std::max<int64_t>(1, candidates);

    std::set<std::pair<int64_t, int64_t>> trained;
    std::set<int64_t> users;
    for (const Sample& s : split.train) {
      ASSERT_TRUE(0 <= s.begin && s.begin < s.end && s.end <= lengths[s.user]);
      ASSERT_LE(s.end - s.begin, options.max_history + (options.retrieval ? 1 : candidates));
      ASSERT_EQ(s.num_candidates, candidates);
      ASSERT_GT(s.end - s.begin, candidates);
      ASSERT_GE(s.end - s.begin, options.retrieval ? 2 : 1);
      for (int64_t i = s.begin; i < s.end; ++i) trained.emplace(s.user, i);
      ASSERT_TRUE(users.insert(s.user).second) << "two training windows";
    }
    for (const auto* samples : {&split.validation, &split.test}) {
      const bool held_out = samples == &split.test || options.hold_out_validation;
      std::set<int64_t> evaluated;
      for (const Sample& s : *samples) {
        ASSERT_TRUE(0 <= s.begin && s.begin < s.end && s.end <= lengths[s.user]);
        ASSERT_LE(s.end - s.begin, options.max_history + targets);
        ASSERT_LE(s.end - s.num_candidates - s.begin, options.max_history);
        ASSERT_GT(s.end - s.num_candidates, s.begin) << "no history";
        ASSERT_TRUE(!options.retrieval || s.num_candidates == 1);
        // With no candidates, every event is predicted.
        const int64_t predicted = s.num_candidates == 0 ? s.begin : s.end - s.num_candidates;
        for (int64_t i = predicted; held_out && i < s.end; ++i) {
          ASSERT_FALSE(trained.contains({s.user, i})) << "event " << i << " is trained and tested";
        }
        ASSERT_TRUE(evaluated.insert(s.user).second) << "two windows";
      }
      users.insert(evaluated.begin(), evaluated.end());
    }
    ASSERT_EQ(std::ssize(users) + split.skipped_users, dataset.num_users());
    ASSERT_THAT(split.rule,
                HasSubstr(fmt::format("{} of {} users", split.skipped_users, dataset.num_users())));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SplitProperties,
                         testing::Values(SplitKind::leave_one_out, SplitKind::user,
                                         SplitKind::temporal));

TEST(Temporal, TrainsTheAskedShareOfEvents) {
  const auto dataset = MemoryDataset::of_lengths(std::vector<int64_t>(50, 40), /*step=*/100);
  for (const double fraction : {0.1, 0.5, 0.73, 0.9}) {
    const Split split = make_split(
        dataset, {.kind = SplitKind::temporal, .max_history = 100, .train_fraction = fraction});
    int64_t events = 0;
    for (const Sample& s : split.train) events += s.end - s.begin;
    EXPECT_NEAR(static_cast<double>(events) / 2000, fraction, 0.005);
  }
}

}  // namespace
}  // namespace seqfuse::data::split_test
