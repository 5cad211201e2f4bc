// Contents of hash tables: saved, loaded, refused; the same for any number of threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/parallel.h"
#include "base/random.h"
#include "tests/embeddings/hash_table_fixture.h"
#include "tests/missing_gpu.h"

namespace seqfuse::embeddings::hash_table_contents_test {
namespace {

using hash_tables::host;
using hash_tables::Ids;
using hash_tables::multiples;
using hash_tables::random_ids;

class HashTableContentsTest : public hash_tables::HashTableFixture {};

TEST_P(HashTableContentsTest, LoadingGoesOnAsIfNothingHadHappened) {
  const auto run = [&](HashTable& table, int from, int to) {
    for (int step = from; step < to; ++step) {
      Random random(static_cast<uint64_t>(step));
      insert(table, random_ids(random, 100, 3000));
    }
  };
  HashTableOptions full = options(700);
  full.in_order = true;
  full.init = {.kind = RowInit::normal, .a = 0, .b = 1, .seed = 1};
  HashTable whole(full), first(full), second(full);
  run(whole, 0, 20);
  run(whole, 20, 40);
  run(first, 0, 20);
  second.load(first.contents());
  run(second, 20, 40);
  EXPECT_TRUE(second.contents().slots.equal(whole.contents().slots));
  EXPECT_TRUE(second.contents().ids.equal(whole.contents().ids));
  EXPECT_TRUE(second.contents().rows.equal(whole.contents().rows));
  EXPECT_TRUE(second.contents().scores.equal(whole.contents().scores));

  // A table of another capacity loads the same rows.
  HashTable larger(options(5000));
  larger.load(whole.contents());
  const HashTableContents contents = whole.contents();
  const at::Tensor slots = larger.find(contents.ids.to(device()));
  EXPECT_TRUE(larger.read_rows(slots).cpu().equal(contents.rows));
  HashTable smaller(options(699));
  insert(smaller, {5});
  EXPECT_THROW(
      {
        try {
          smaller.load(contents);
        } catch (const DataError& error) {
          EXPECT_THAT(error.what(),
                      testing::AllOf(testing::HasSubstr("700"), testing::HasSubstr("699")));
          throw;
        }
      },
      DataError);
  EXPECT_EQ(smaller.size(), 1);
  HashTableContents twice = contents;
  twice.ids = twice.ids.clone();
  twice.ids[3].fill_(twice.ids[4].item<int64_t>());
  EXPECT_THROW(larger.load(twice), DataError);
  HashTableContents moved = contents;
  moved.slots = moved.slots.flip(0);
  HashTable same(options(700));
  EXPECT_THROW(same.load(moved), DataError);
}

TEST_P(HashTableContentsTest, RefusesDamagedContentsAndStaysAsItIs) {
  HashTable table(options(100)), other(options(100));
  insert(table, multiples(30));
  insert(other, {5});
  const HashTableContents whole = table.contents();
  using Part = at::Tensor HashTableContents::*;
  for (const Part part :
       {&HashTableContents::ids, &HashTableContents::rows, &HashTableContents::scores,
        &HashTableContents::touched, &HashTableContents::slots}) {
    HashTableContents damaged = whole;
    damaged.*part = (whole.*part).slice(0, 0, 20);
    EXPECT_THROW(other.check(damaged), DataError);
    EXPECT_THROW(other.load(damaged), DataError);
  }
  HashTableContents square = whole;
  square.ids = square.ids.view({5, 6});
  EXPECT_THROW(other.load(square), DataError);
  HashTableContents no_rows = whole;
  no_rows.rows = at::Tensor();
  EXPECT_THROW(other.load(no_rows), DataError);
  EXPECT_EQ(other.size(), 1);
  other.check(whole);
  EXPECT_EQ(other.size(), 1);
  other.load(whole);
  EXPECT_EQ(other.size(), 30);
}

// Else the next insert would have the number of one that the rows remember, and evict none of them.
TEST_P(HashTableContentsTest, LoadedRowsAreEvictedThoughTheNumberOfInsertsIsUnknown) {
  HashTable table(options(100)), other(options(100));
  insert(table, multiples(100));
  HashTableContents contents = table.contents();
  contents.calls = 0;
  other.load(contents);
  insert(other, {-1});
  EXPECT_EQ(other.counts().failed, 0);
  EXPECT_EQ(other.counts().evicted, 1);
}

// As an increment is saved: the rows of the inserts since the last one.
TEST_P(HashTableContentsTest, ContentsSinceAnInsertAreTheRowsOfLaterOnes) {
  HashTable table(options(300));
  insert(table, multiples(100));
  insert(table, {8, 16, 5});
  const int64_t before = table.calls();
  insert(table, {16, 7});
  const HashTableContents later = table.contents(before + 1), two = table.contents(before);
  auto ids = host<int64_t>(later.ids);
  EXPECT_THAT(ids, testing::UnorderedElementsAre(16, 7));
  EXPECT_THAT(host<int64_t>(two.ids), testing::UnorderedElementsAre(8, 16, 5, 7));
  EXPECT_EQ(later.rows.size(0), 2);
}

INSTANTIATE_TEST_SUITE_P(Cpu, HashTableContentsTest, hash_tables::on_cpu());
INSTANTIATE_TEST_SUITE_P(Cuda, HashTableContentsTest, hash_tables::on_gpu());

// The contents of a table after evictions, erasures and growth. A batch is several tasks of a thread.
HashTableContents after_many_calls(at::Device device) {
  HashTableOptions options;
  options.capacity = 30'000;
  options.initial_capacity = 200;
  options.dim = 2;
  options.in_order = true;
  options.device = device;
  options.init = {.kind = RowInit::uniform, .a = -1, .b = 1, .seed = 9};
  HashTable table(options);
  for (uint64_t step = 0; step < 12; ++step) {
    Random random(step);
    const at::Tensor ids =
        torch::tensor(random_ids(random, 5000, 200'000), torch::kLong).to(device);
    table.insert({.ids = ids});
    table.erase(ids.slice(0, 0, 400));
  }
  return table.contents();
}

void expect_equal(const HashTableContents& a, const HashTableContents& b) {
  EXPECT_EQ(a.size(), 29'600);  // full, before the last erase
  EXPECT_TRUE(a.slots.cpu().equal(b.slots.cpu()));
  EXPECT_TRUE(a.ids.cpu().equal(b.ids.cpu()));
  EXPECT_TRUE(a.scores.cpu().equal(b.scores.cpu()));
  EXPECT_TRUE(a.rows.cpu().equal(b.rows.cpu()));
}

TEST(HashTableOrder, IsTheSameForAnyNumberOfThreads) {
  const int threads = num_threads();
  set_num_threads(1);
  const HashTableContents one = after_many_calls(at::kCPU);
  set_num_threads(4);
  const HashTableContents four = after_many_calls(at::kCPU);
  set_num_threads(threads);
  expect_equal(one, four);
}

TEST(HashTableOrderCuda, IsTheSameInOrderAsOnTheCpu) {
  if (const char* why = test::missing_gpu()) GTEST_SKIP() << why;
  expect_equal(after_many_calls(at::kCPU), after_many_calls(at::kCUDA));
}

}  // namespace
}  // namespace seqfuse::embeddings::hash_table_contents_test
