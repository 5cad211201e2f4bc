// Events of users: grouping in bounded memory, order, blank times, duplicates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/random.h"
#include "data/ingest/event_store.h"
#include "data/ingest/user_history.h"
#include "tests/temporary_directory.h"

namespace seqfuse::data::data_history_test {
namespace {

using testing::ElementsAre;

std::vector<int64_t> times(const std::vector<Event>& events) {
  std::vector<int64_t> result;
  for (const Event& event : events) result.push_back(event.time);
  return result;
}
std::vector<uint32_t> items(const std::vector<Event>& events) {
  std::vector<uint32_t> result;
  for (const Event& event : events) result.push_back(event.item);
  return result;
}

constexpr Time kBlank = {0, Time::kBlank};

// Events at these times; items are their positions in the file.
std::vector<Event> history(const std::vector<Time>& event_times) {
  std::vector<Event> events;
  for (const Time& time : event_times) {
    events.push_back({time.value, 0, static_cast<uint32_t>(events.size()), 0, time.fraction});
  }
  return events;
}

TEST(History, SortsByTimeAndKeepsFileOrderOfEqualTimes) {
  auto events = history({{5}, {3}, {5}, {3}, {9}});
  HistoryCounts counts;
  make_history(events, {.has_time = true}, counts);
  EXPECT_THAT(items(events), ElementsAre(1, 3, 0, 2, 4));
  EXPECT_EQ(counts.out_of_order, 2);
}

TEST(History, BlankTimesLieBetweenTheirNeighbours) {
  auto events = history({kBlank, {10}, kBlank, kBlank, {40}, kBlank});
  HistoryCounts counts;
  make_history(events, {.has_time = true, .keep_file_order = true}, counts);
  EXPECT_THAT(times(events), ElementsAre(10, 10, 20, 30, 40, 40));
  EXPECT_EQ(counts.blank_times, 4);
}

TEST(History, KeptOrderIsMadeNonDecreasing) {
  auto events = history({{10}, kBlank, {4}, {20}});
  HistoryCounts counts;
  make_history(events, {.has_time = true, .keep_file_order = true}, counts);
  EXPECT_THAT(times(events), ElementsAre(10, 10, 10, 20));
  EXPECT_THAT(items(events), ElementsAre(0, 1, 2, 3));

  auto falling = history({{10}, {5}, {6}});
  HistoryCounts raised;
  make_history(falling, {.has_time = true, .keep_file_order = true}, raised);
  EXPECT_THAT(times(falling), ElementsAre(10, 10, 10));
  EXPECT_EQ(raised.out_of_order, 2);
}

TEST(History, FractionsOrderEventsOfOneSecond) {
  auto events =
      history({{7, 900}, {-7, 5}, {7, 100}, {7, 0}, {-7, 4}, {INT64_MIN}, {INT64_MAX, 1}});
  HistoryCounts counts;
  make_history(events, {.has_time = true}, counts);
  EXPECT_THAT(items(events), ElementsAre(5, 4, 1, 3, 2, 0, 6));
  EXPECT_EQ(counts.out_of_order, 5) << "all but the first and the last";
}

TEST(History, BlankTimesLieBetweenFractions) {
  auto events =
      history({{-1, 0}, kBlank, {-1, 500'000'000}, kBlank, kBlank, kBlank, {1, 500'000'000}});
  HistoryCounts counts;
  make_history(events, {.has_time = true, .keep_file_order = true}, counts);
  EXPECT_THAT(times(events), ElementsAre(-1, -1, -1, 0, 0, 1, 1));
  EXPECT_EQ(events[1].fraction, 250'000'000U);
  EXPECT_EQ(events[3].fraction, 0U);
  EXPECT_EQ(events[4].fraction, 500'000'000U);
}

TEST(History, BlankTimesBetweenTheFarthestIntegers) {
  auto events = history({{INT64_MIN}, kBlank, {INT64_MAX}});
  HistoryCounts counts;
  make_history(events, {.has_time = true, .keep_file_order = true}, counts);
  EXPECT_THAT(times(events), ElementsAre(INT64_MIN, -1, INT64_MAX));
}

TEST(History, AllBlankTimesAreZero) {
  auto events = history({kBlank, kBlank});
  HistoryCounts counts;
  make_history(events, {.has_time = true, .keep_file_order = true}, counts);
  EXPECT_THAT(times(events), ElementsAre(0, 0));
}

TEST(History, DropsRepeatedEvents) {
  std::vector<Event> events = {{1, 0, 7, 2}, {1, 0, 7, 2}, {1, 0, 7, 3},
                               {2, 0, 7, 2}, {1, 0, 7, 2}, {1, 0, 7, 2, 5}};
  HistoryCounts counts;
  make_history(events, {.has_time = true, .deduplicate = true}, counts);
  EXPECT_EQ(events.size(), 4U) << "one differs by its fraction";
  EXPECT_EQ(counts.duplicates, 2);
}

// Many runs on disk and one run in memory are equivalent, and each user's events stay in file
// order.
TEST(EventStore, SpilledRunsEqualOneRun) {
  const TemporaryDirectory directory;
  IdTable users;
  IdTable::Cache cache;
  EventStore spilled(directory.path(), 0, users);  // the smallest buffer: a MiB
  EventStore whole(directory.path(), int64_t{1} << 30, users);
  Random random(7);
  int64_t order = 0;
  for (int chunk = 0; chunk < 50; ++chunk) {
    std::vector<std::vector<Event>> pieces(3);
    for (int i = 0; i < 6000; ++i) {
      const auto user = static_cast<int64_t>(random.below(random.below(400) + 1)) - 100;
      // Every other event has a fraction, from the middle of the log on.
      const uint32_t fraction =
          chunk >= 20 && order % 2 == 0 ? 1 + static_cast<uint32_t>(order) : 0;
      pieces[static_cast<size_t>(i) / 2000].push_back(
          {order++, users.code(user, cache), 0, chunk, fraction});
    }
    const std::vector<std::span<const Event>> views(pieces.begin(), pieces.end());
    spilled.append(views, chunk % 2);
    whole.append(views, chunk % 2);
  }
  spilled.finish();
  whole.finish();
  EXPECT_EQ(spilled.num_events(), 300000);
  ASSERT_EQ(spilled.num_users(), whole.num_users());
  for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{
           {0, whole.num_users()}, {0, 1}, {17, 90}, {whole.num_users() - 3, whole.num_users()}}) {
    std::vector<Event> a, b;
    spilled.load(begin, end, a);
    whole.load(begin, end, b);
    EXPECT_EQ(times(a), times(b));
    int64_t previous_user = INT64_MIN, previous_time = -1, count = 0;
    for (const Event& event : a) {
      const int64_t user = std::stoll(users.text(event.user));
      if (user != previous_user) previous_time = -1;
      EXPECT_GE(user, previous_user);
      EXPECT_GT(event.time, previous_time);
      const bool has_fraction = event.action >= 20 && event.time % 2 == 0;
      ASSERT_EQ(event.fraction, has_fraction ? 1 + static_cast<uint32_t>(event.time) : 0U);
      previous_user = user;
      previous_time = event.time;
      ++count;
    }
    int64_t expected = 0;
    for (int64_t p = begin; p < end; ++p) expected += whole.count(p);
    EXPECT_EQ(count, expected);
  }
}

}  // namespace
}  // namespace seqfuse::data::data_history_test
