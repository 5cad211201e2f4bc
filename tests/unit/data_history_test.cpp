// Events of users: grouping in bounded memory, order, blank times, duplicates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/random.h"
#include "data/ingest/event_store.h"
#include "data/ingest/user_history.h"
#include "tests/temporary_directory.h"

namespace seqfuse::data {
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

// Times and, as items, their places in the file.
std::vector<Event> history(const std::vector<int64_t>& event_times) {
  std::vector<Event> events;
  for (const int64_t time : event_times) {
    events.push_back({time, 0, static_cast<uint32_t>(events.size()), 0});
  }
  return events;
}

TEST(History, SortsByTimeAndKeepsFileOrderOfEqualTimes) {
  auto events = history({5, 3, 5, 3, 9});
  HistoryCounts counts;
  make_history(events, {.has_time = true}, counts);
  EXPECT_THAT(items(events), ElementsAre(1, 3, 0, 2, 4));
  EXPECT_EQ(counts.out_of_order, 2);
}

TEST(History, BlankTimesLieBetweenTheirNeighbours) {
  auto events = history({kNoTime, 10, kNoTime, kNoTime, 40, kNoTime});
  HistoryCounts counts;
  make_history(events, {.has_time = true, .keep_file_order = true}, counts);
  EXPECT_THAT(times(events), ElementsAre(10, 10, 20, 30, 40, 40));
  EXPECT_EQ(counts.blank_times, 4);
}

TEST(History, KeptOrderIsMadeNonDecreasing) {
  auto events = history({10, kNoTime, 4, 20});
  HistoryCounts counts;
  make_history(events, {.has_time = true, .keep_file_order = true}, counts);
  EXPECT_THAT(times(events), ElementsAre(10, 10, 10, 20));
  EXPECT_THAT(items(events), ElementsAre(0, 1, 2, 3));
}

TEST(History, AllBlankTimesAreZero) {
  auto events = history({kNoTime, kNoTime});
  HistoryCounts counts;
  make_history(events, {.has_time = true, .keep_file_order = true}, counts);
  EXPECT_THAT(times(events), ElementsAre(0, 0));
}

TEST(History, DropsRepeatedEvents) {
  std::vector<Event> events = {
      {1, 0, 7, 2}, {1, 0, 7, 2}, {1, 0, 7, 3}, {2, 0, 7, 2}, {1, 0, 7, 2}};
  HistoryCounts counts;
  make_history(events, {.has_time = true, .deduplicate = true}, counts);
  EXPECT_EQ(events.size(), 3U);
  EXPECT_EQ(counts.duplicates, 2);
}

// Many runs on disk give what one run in memory gives, and each user's events stay in file order.
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
      pieces[static_cast<size_t>(i) / 2000].push_back({order++, users.code(user, cache), 0, chunk});
    }
    const std::vector<std::span<const Event>> views(pieces.begin(), pieces.end());
    spilled.append(views, chunk % 2);
    whole.append(views, chunk % 2);
  }
  spilled.finish();
  whole.finish();
  EXPECT_EQ(spilled.num_events(), 300000);
  ASSERT_EQ(spilled.num_users(), whole.num_users());
  for (const auto [begin, end] : std::vector<std::pair<int64_t, int64_t>>{
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
}  // namespace seqfuse::data
