#include "data/batch/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "tests/unit/memory_dataset.h"

namespace seqfuse::data::batch_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

bool same(const Batch& a, const Batch& b) {
  return a.index == b.index && a.users == b.users && a.offsets == b.offsets && a.items == b.items &&
         a.actions == b.actions && a.timestamps == b.timestamps &&
         a.num_candidates == b.num_candidates && a.context == b.context;
}

std::vector<Batch> all_batches(const Dataset& dataset, const std::vector<Sample>& samples,
                               const LoaderOptions& options, int64_t epoch = 0,
                               int64_t first_batch = 0) {
  BatchLoader loader(dataset, samples, options, epoch, first_batch);
  std::vector<Batch> batches;
  while (auto batch = loader.next()) batches.push_back(std::move(*batch));
  EXPECT_FALSE(loader.next()) << "an ended epoch stays ended";
  return batches;
}

// Users of lengths 0, 1, ..., 18, 0, 1, ... with their whole sequences as windows.
struct Fixture {
  MemoryDataset dataset;
  std::vector<Sample> samples;
  explicit Fixture(int64_t users = 103) : dataset(MemoryDataset::of_lengths(lengths(users))) {
    for (int64_t row = 0; row < users; ++row) samples.push_back({row, 0, row % 19, 0});
  }
  static std::vector<int64_t> lengths(int64_t users) {
    std::vector<int64_t> result(users);
    for (int64_t row = 0; row < users; ++row) result[row] = row % 19;
    return result;
  }
};

TEST(MakeBatch, CopiesWindows) {
  const auto dataset = MemoryDataset::of_lengths({5, 0, 3});
  const std::vector<Sample> samples = {{0, 1, 4, 2}, {1, 0, 0, 0}, {2, 2, 3, 1}};
  const Batch batch = make_batch(dataset, samples.data(), 3, 9);
  EXPECT_EQ(batch.index, 9);
  EXPECT_EQ(batch.batch_size(), 3);
  EXPECT_EQ(batch.num_events(), 4);
  EXPECT_THAT(batch.users, ElementsAre(0, 1, 2));
  EXPECT_THAT(batch.offsets, ElementsAre(0, 3, 3, 4));
  EXPECT_THAT(batch.items, ElementsAre(2, 3, 4, 3));
  EXPECT_THAT(batch.actions, ElementsAre(1, 0, 1, 0));
  EXPECT_THAT(batch.timestamps, ElementsAre(10, 20, 30, 22));
  EXPECT_THAT(batch.num_candidates, ElementsAre(2, 0, 1));
  EXPECT_THAT(batch.context, ElementsAre(ElementsAre(1, 2, 3)));
}

// The beginning of each user's window in an epoch.
std::vector<int64_t> begins(const MemoryDataset& dataset, const std::vector<Sample>& samples,
                            const LoaderOptions& options, int64_t epoch) {
  std::vector<int64_t> result(samples.size());
  for (const Batch& batch : all_batches(dataset, samples, options, epoch)) {
    for (int64_t b = 0; b < batch.batch_size(); ++b) {
      EXPECT_EQ(batch.offsets[b + 1] - batch.offsets[b], 3);
      result[batch.users[b]] = batch.items[batch.offsets[b]] - 1;  // items count from 1
    }
  }
  return result;
}

TEST(BatchLoader, WindowsWithSlackBeginAnywhereInIt) {
  constexpr int64_t kUsers = 400;
  const auto dataset = MemoryDataset::of_lengths(std::vector<int64_t>(kUsers, 8));
  std::vector<Sample> samples;
  for (int64_t row = 0; row < kUsers; ++row)
    samples.push_back({.user = row, .begin = 5, .end = 8, .slack = row % 2 == 0 ? 3 : 0});
  const auto first = begins(dataset, samples, {.batch_size = 7}, 0);
  std::vector<int64_t> count(6);
  for (int64_t row = 0; row < kUsers; ++row) {
    ASSERT_LE(first[row], 5);
    ++count[first[row]];
    if (row % 2 == 1) {
      EXPECT_EQ(first[row], 5) << "user " << row << " has no slack";
    }
  }
  EXPECT_EQ(count[0] + count[1], 0);
  for (int64_t begin = 2; begin < 5; ++begin) EXPECT_NEAR(count[begin], 50, 25) << begin;
  EXPECT_EQ(begins(dataset, samples, {.batch_size = 31, .shuffle = false, .threads = 3}, 0), first);
  EXPECT_NE(begins(dataset, samples, {.batch_size = 7}, 1), first);
  EXPECT_NE(begins(dataset, samples, {.batch_size = 7, .seed = 2}, 0), first);
}

TEST(MakeBatch, LeavesOutWhatTheDatasetLacks) {
  const MemoryDataset dataset({{.items = {4, 5}}});
  const Sample sample{0, 0, 2, 0};
  const Batch batch = make_batch(dataset, &sample, 1, 0);
  EXPECT_THAT(batch.items, ElementsAre(4, 5));
  EXPECT_THAT(batch.actions, IsEmpty());
  EXPECT_THAT(batch.timestamps, IsEmpty());
  EXPECT_THAT(batch.context, IsEmpty());
}

TEST(MakeBatch, RefusesAWindowOutsideTheSequence) {
  const auto dataset = MemoryDataset::of_lengths({5});
  for (const Sample sample :
       {Sample{0, 2, 6, 0}, Sample{0, -1, 3, 0}, Sample{0, 3, 2, 0}, Sample{0, 1, 3, 3}}) {
    EXPECT_THAT([&] { make_batch(dataset, &sample, 1, 0); },
                testing::ThrowsMessage<Error>(HasSubstr("does not fit the 5 events")));
  }
}

TEST(BatchLoader, GivesEverySampleOnceInOrder) {
  const Fixture data;
  for (const int threads : {0, 1, 3}) {
    const auto batches = all_batches(data.dataset, data.samples,
                                     {.batch_size = 10, .shuffle = false, .threads = threads});
    ASSERT_EQ(batches.size(), 11);
    EXPECT_EQ(batches.back().batch_size(), 3);
    int64_t row = 0;
    for (const Batch& batch : batches) {
      EXPECT_EQ(batch.index, row / 10);
      for (const int64_t user : batch.users) EXPECT_EQ(user, row++);
    }
    EXPECT_EQ(row, 103);
  }
}

TEST(BatchLoader, ShufflesBySeedAndEpochAlone) {
  const Fixture data;
  const auto users = [&](uint64_t seed, int64_t epoch, int threads) {
    std::vector<int64_t> result;
    for (const Batch& batch :
         all_batches(data.dataset, data.samples,
                     {.batch_size = 7, .seed = seed, .threads = threads}, epoch)) {
      result.insert(result.end(), batch.users.begin(), batch.users.end());
    }
    return result;
  };
  const auto first = users(1, 0, 0);
  EXPECT_EQ(first, users(1, 0, 1));
  EXPECT_EQ(first, users(1, 0, 4));
  EXPECT_NE(first, users(1, 1, 0));
  EXPECT_NE(first, users(2, 0, 0));
  auto sorted = first;
  std::ranges::sort(sorted);
  EXPECT_NE(first, sorted);
  for (int64_t row = 0; row < 103; ++row) EXPECT_EQ(sorted[row], row);
}

TEST(BatchLoader, ResumesWithIdenticalBatches) {
  const Fixture data;
  const LoaderOptions options{.batch_size = 8, .seed = 5, .threads = 2, .prefetch = 3};
  const auto whole = all_batches(data.dataset, data.samples, options, 4);
  for (const int64_t first : {0, 1, 6, 12, 13, 99}) {
    const auto rest = all_batches(data.dataset, data.samples, options, 4, first);
    ASSERT_EQ(std::ssize(rest), std::max<int64_t>(0, std::ssize(whole) - first));
    for (size_t i = 0; i < rest.size(); ++i) EXPECT_TRUE(same(rest[i], whole[first + i]));
  }
}

TEST(BatchLoader, CanDropTheLastBatch) {
  const Fixture data(16);
  EXPECT_EQ(all_batches(data.dataset, data.samples, {.batch_size = 5, .drop_last = true}).size(),
            3);
  EXPECT_EQ(all_batches(data.dataset, data.samples, {.batch_size = 8, .drop_last = true}).size(),
            2);
  EXPECT_THAT(all_batches(data.dataset, data.samples, {.batch_size = 17, .drop_last = true}),
              IsEmpty());
  EXPECT_EQ(BatchLoader::batches_per_epoch(16, {.batch_size = 5}), 4);
  EXPECT_EQ(BatchLoader::batches_per_epoch(16, {.batch_size = 5, .drop_last = true}), 3);
  EXPECT_EQ(BatchLoader::batches_per_epoch(0, {.batch_size = 5}), 0);
}

TEST(BatchLoader, NoSamplesNoBatches) {
  const Fixture data(3);
  EXPECT_THAT(all_batches(data.dataset, {}, {.threads = 2}), IsEmpty());
}

TEST(BatchLoader, RethrowsInTheCallThatWouldReturnTheBatch) {
  const Fixture data;
  auto samples = data.samples;
  samples[35].end = 1000;  // in batch 3
  for (const int threads : {0, 1, 4}) {
    BatchLoader loader(data.dataset, samples,
                       {.batch_size = 10, .shuffle = false, .threads = threads}, 0);
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(loader.next()->index, i);
    EXPECT_THROW(loader.next(), Error);
    EXPECT_THROW(loader.next(), Error) << "it does not go on as if nothing had happened";
  }
}

TEST(BatchLoader, MayBeDestroyedAtAnyTime) {
  const Fixture data;
  for (int taken = 0; taken < 15; ++taken) {
    BatchLoader loader(data.dataset, data.samples, {.batch_size = 9, .threads = 3, .prefetch = 2},
                       0);
    for (int i = 0; i < taken; ++i) loader.next();
  }
}

TEST(BatchLoader, PreparesNoFurtherThanPrefetch) {
  // Counts the samples read while no batch is taken.
  struct Counting : MemoryDataset {
    explicit Counting(MemoryDataset base) : MemoryDataset(std::move(base)) {}
    mutable std::atomic<int64_t> reads{0};
    int64_t context(int64_t feature, int64_t row) const override {
      ++reads;
      return MemoryDataset::context(feature, row);
    }
  };
  const Fixture data;
  const Counting dataset(MemoryDataset::of_lengths(Fixture::lengths(103)));
  BatchLoader loader(dataset, data.samples, {.batch_size = 1, .threads = 2, .prefetch = 5}, 0);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (dataset.reads < 5 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(dataset.reads, 5);
}

TEST(BatchLoader, RefusesAnImpossibleBatchSize) {
  const Fixture data(3);
  EXPECT_THAT([&] { BatchLoader(data.dataset, data.samples, {.batch_size = 0}, 0); },
              testing::ThrowsMessage<UsageError>(HasSubstr("batch size is 0")));
}

}  // namespace
}  // namespace seqfuse::data::batch_test
