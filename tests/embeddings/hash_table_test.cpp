// The hash table of dynamic tables against a plain map, on every device: the same calls, the same
// answers. A table of one bucket evicts exactly the lowest score of all.
#include "embeddings/dynamic/hash_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "tests/embeddings/hash_table_fixture.h"

namespace seqfuse::embeddings::hash_table_test {
namespace {

namespace table_op = ops::hash_table;
using hash_tables::host;
using hash_tables::Ids;
using hash_tables::multiples;
using hash_tables::random_ids;

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();

int64_t slots_of_buckets(const HashTable& table) {
  return table_op::buckets_for(table.capacity());
}

class HashTableTest : public hash_tables::HashTableFixture {};

TEST_P(HashTableTest, RandomCallsEqualAPlainMap) {
  for (const uint64_t seed : {1, 2, 3}) {
    Random random(seed);
    HashTableOptions small = options(2000);
    small.initial_capacity = 100;  // grows several times on the way
    small.score = Score::lfu;
    HashTable table(small);
    std::unordered_map<int64_t, int64_t> model;  // how often, by id
    for (int step = 0; step < 120; ++step) {
      const Ids ids = random_ids(random, static_cast<int64_t>(random.below(60)), 1900);
      const uint64_t action = random.below(10);
      if (action < 6) {
        Ids often;
        for (size_t i = 0; i < ids.size(); ++i) {
          often.push_back(1 + static_cast<int64_t>(random.below(5)));
        }
        const auto inserted = table.insert({.ids = to_device(ids), .often = to_device(often)});
        mark(table, ids, inserted.slots);
        const auto states = host<uint8_t>(inserted.states);
        for (size_t i = 0; i < ids.size(); ++i) {
          EXPECT_EQ(states[i], model.count(ids[i]) ? table_op::kFound : table_op::kInserted);
          model[ids[i]] += often[i];
        }
      } else if (action < 8) {
        Ids twice = ids;
        twice.insert(twice.end(), ids.begin(), ids.end());
        table.erase(to_device(twice));
        for (const int64_t id : ids) model.erase(id);
      } else if (action == 8) {
        const auto slots = host<int64_t>(table.find(to_device(ids)));
        for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(slots[i] >= 0, model.count(ids[i]) > 0);
      } else if (random.below(8) == 0) {
        table.clear();
        model.clear();
      }
      ASSERT_EQ(table.size(), static_cast<int64_t>(model.size())) << "step " << step;
    }
    expect_marks(table);
    const HashTableContents contents = table.contents();
    const auto ids = host<int64_t>(contents.ids), scores = host<int64_t>(contents.scores);
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_TRUE(model.count(ids[i])) << ids[i];
      EXPECT_EQ(scores[i], model[ids[i]]);
    }
    EXPECT_EQ(table.counts().evicted, 0);
    EXPECT_EQ(table.counts().failed, 0);
  }
}

// The scores, and that the lowest are evicted first, never one of the same batch.
TEST_P(HashTableTest, EvictsTheLowestScores) {
  for (const Score kind : {Score::lru, Score::lfu, Score::step, Score::custom,
                           Score::time_frequency, Score::frequency_time}) {
    SCOPED_TRACE(static_cast<int>(kind));
    Random random(7);
    HashTableOptions full = options(100);  // one bucket
    full.score = kind;
    HashTable table(full);
    std::map<int64_t, int64_t> model;  // score by id
    int64_t evicted = 0;
    for (int64_t step = 1; step <= 80; ++step) {
      const Ids ids = random_ids(random, 1 + static_cast<int64_t>(random.below(30)), 300);
      Ids often, given;
      for (size_t i = 0; i < ids.size(); ++i) {
        often.push_back(1 + static_cast<int64_t>(random.below(4)));
        given.push_back(static_cast<int64_t>(random.below(1000)) - 500);
      }
      HashTable::Insert batch{.ids = to_device(ids), .often = to_device(often), .list = true};
      if (kind == Score::custom) batch.scores = to_device(given);
      if (kind == Score::step) batch.step = 10 * step;
      const auto inserted = table.insert(batch);
      mark(table, ids, inserted.slots);

      const int64_t count = inserted.evicted_count.item<int64_t>();
      const auto gone = host<int64_t>(inserted.evicted_ids.slice(0, 0, count));
      const auto their_scores = host<int64_t>(inserted.evicted_scores.slice(0, 0, count));
      const auto their_marks = host<float>(inserted.evicted_rows.slice(0, 0, count).select(1, 0));
      std::multiset<int64_t> left;
      for (const auto& [id, score] : model) {
        if (std::find(ids.begin(), ids.end(), id) == ids.end()) left.insert(score);
      }
      std::multiset<int64_t> expected, actual(their_scores.begin(), their_scores.end());
      for (const int64_t score : left) {
        if (static_cast<int64_t>(expected.size()) < count) expected.insert(score);
      }
      ASSERT_EQ(actual, expected) << "step " << step;
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(model.at(gone[i]), their_scores[i]);
        EXPECT_EQ(their_marks[i], mark_of(gone[i]));
        model.erase(gone[i]);
      }
      evicted += count;
      for (size_t i = 0; i < ids.size(); ++i) {
        const bool known = model.count(ids[i]) > 0;
        const int64_t old = known ? model[ids[i]] : 0;
        const int64_t time = int64_t{1} << 32;
        const std::map<Score, int64_t> expected_score = {
            {Score::lru, step},
            {Score::lfu, old + often[i]},
            {Score::step, 10 * step},
            {Score::custom, given[i]},
            {Score::time_frequency, step * time + old % time + often[i]},
            {Score::frequency_time, (old / time + often[i]) * time + step}};
        model[ids[i]] = expected_score.at(kind);
      }
      const HashTableContents contents = table.contents();
      const auto now = host<int64_t>(contents.ids), scores = host<int64_t>(contents.scores);
      std::map<int64_t, int64_t> actual_scores;
      for (size_t i = 0; i < now.size(); ++i) actual_scores[now[i]] = scores[i];
      ASSERT_EQ(actual_scores, model) << "step " << step;
    }
    expect_marks(table);
    EXPECT_GT(evicted, 100);
    EXPECT_EQ(table.counts().evicted, evicted);
    EXPECT_EQ(table.counts().early, 0);
    EXPECT_EQ(table.counts().failed, 0);
  }
}

TEST_P(HashTableTest, AValueBelongsToItsKeyWhileAFullTableEvicts) {
  HashTableOptions full = options(5000);
  full.list_evicted = 100'000;
  HashTable table(full);
  std::set<int64_t> model;
  Random random(11);
  for (int step = 0; step < 60; ++step) {
    const Ids ids = random_ids(random, 1000, 40'000);
    const auto inserted = insert(table, ids);
    mark(table, ids, inserted.slots);
    EXPECT_EQ(inserted.slots.ge(0).sum().item<int64_t>(), 1000);
    const HashTable::EvictedIds evicted = table.take_evicted();
    EXPECT_EQ(evicted.left_out, 0);
    for (const int64_t id : host<int64_t>(evicted.ids)) ASSERT_EQ(model.erase(id), 1) << id;
    model.insert(ids.begin(), ids.end());
    ASSERT_EQ(table.size(), static_cast<int64_t>(model.size()));
    // The ids of the batch are there.
    EXPECT_TRUE(table.find(to_device(ids)).equal(inserted.slots));
  }
  expect_marks(table);
  EXPECT_EQ(table.size(), 5000);
  EXPECT_EQ(table.counts().early, 0);
  const auto ids = host<int64_t>(table.contents().ids);
  EXPECT_EQ(std::set<int64_t>(ids.begin(), ids.end()), model);
}

TEST_P(HashTableTest, EveryInt64IsAnId) {
  HashTable table(options(100));
  const Ids ids = {kLowest, kLowest + 1, -2, -1, 0, 1, kHighest - 1, kHighest};
  mark(table, ids, insert(table, ids).slots);
  expect_marks(table);
  EXPECT_EQ(table.size(), 8);
  table.erase(to_device({kLowest, kHighest, -1, 0}));
  const auto slots = host<int64_t>(table.find(to_device(ids)));
  EXPECT_THAT(slots, testing::ElementsAre(-1, testing::Ge(0), testing::Ge(0), -1, -1,
                                          testing::Ge(0), testing::Ge(0), -1));
}

TEST_P(HashTableTest, MultiplesOfEightFillBucketsEvenly) {
  constexpr int64_t kCapacity = 200'000, kCount = kCapacity * 95 / 100;
  HashTableOptions fixed = options(kCapacity, 1);
  fixed.initial_capacity = kCapacity;
  HashTable table(fixed);
  const Ids ids = multiples(kCount);
  for (int64_t begin = 0; begin < kCount; begin += 40'000) {
    insert(table, {ids.begin() + begin, ids.begin() + std::min(kCount, begin + 40'000)});
  }
  const HashTableCounts counts = table.counts();
  EXPECT_EQ(counts.size, kCount);
  EXPECT_EQ(counts.evicted, 0);
  EXPECT_EQ(counts.failed, 0);
  std::vector<int64_t> load(slots_of_buckets(table));
  for (const int64_t slot : host<int64_t>(table.contents().slots)) ++load[slot / table_op::kSlots];
  const double mean = static_cast<double>(kCount) / static_cast<double>(load.size());
  EXPECT_LE(static_cast<double>(*std::max_element(load.begin(), load.end())), 1.05 * mean);
}

TEST_P(HashTableTest, TakesAsManyIdsAsItsCapacityThenFailsWithoutEviction) {
  for (const int64_t capacity : {1, 10, 120, 121, 300, 1000, 20'000}) {
    SCOPED_TRACE(capacity);
    HashTableOptions fixed = options(capacity, 1);
    fixed.evict = false;
    HashTable table(fixed);
    const Ids ids = multiples(capacity, 3);
    const auto inserted = insert(table, ids);
    mark(table, ids, inserted.slots);
    EXPECT_EQ(table.counts().size, capacity);
    EXPECT_EQ(table.counts().failed, 0);

    const auto more = insert(table, {0, 1, 4, 7});  // 0 is there
    EXPECT_THAT(host<uint8_t>(more.states), testing::ElementsAre(2 - 1, 3, 3, 3));
    EXPECT_EQ(more.slots.lt(0).sum().item<int64_t>(), 3);
    EXPECT_EQ(table.counts().failed, 3);
    expect_marks(table);
  }
}

TEST_P(HashTableTest, ABatchLargerThanTheTableKeepsItsFirstIds) {
  HashTable table(options(100));
  insert(table, multiples(50, 7));
  const auto inserted = insert(table, multiples(250, 1000));
  EXPECT_EQ(inserted.slots.ge(0).sum().item<int64_t>(), 100);
  if (device().is_cpu()) {  // a GPU takes them in any order
    EXPECT_TRUE(inserted.slots.slice(0, 0, 100).ge(0).all().item<bool>());
  }
  EXPECT_EQ(table.counts().failed, 150);
  EXPECT_EQ(table.size(), 100);
}

TEST_P(HashTableTest, EmptyBatches) {
  HashTable table(options(100));
  const auto inserted = insert(table, {});
  EXPECT_EQ(inserted.slots.numel(), 0);
  EXPECT_EQ(table.find(to_device({})).numel(), 0);
  table.erase(to_device({}));
  EXPECT_EQ(table.contents().size(), 0);
  EXPECT_EQ(table.gather(inserted.slots, {}, torch::zeros({2}).to(device())).size(0), 0);
  HashTable other(options(100));
  insert(other, {1, 2});
  other.load(table.contents());
  EXPECT_EQ(other.size(), 0);
}

TEST_P(HashTableTest, GrowsFromASizeThatIsNotAMultipleOfABucket) {
  for (const int64_t first : {1, 7, 100, 130, 256}) {
    HashTableOptions growing = options(300, 3);
    growing.initial_capacity = first;
    HashTable table(growing);
    Ids all;
    for (int64_t begin = 0; begin < 300; begin += 20) {
      Ids ids;
      for (int64_t i = begin; i < begin + 20; ++i) ids.push_back(8 * i);
      mark(table, ids, insert(table, ids).slots);
      all.insert(all.end(), ids.begin(), ids.end());
      expect_marks(table);
    }
    EXPECT_EQ(table.capacity(), 300);
    EXPECT_EQ(table.size(), 300);
    EXPECT_EQ(table.counts().evicted, 0);
    EXPECT_EQ(table.find(to_device(all)).ge(0).sum().item<int64_t>(), 300);
  }
}

// On a GPU a batch has as many positions as ids with repeats, of which only `limit` are used.
TEST_P(HashTableTest, GrowsByTheIdsOfABatchNotByItsPositions) {
  HashTableOptions growing = options(1000);
  growing.initial_capacity = 64;
  HashTable table(growing);
  for (int64_t step = 0; step < 6; ++step) {
    Ids ids = multiples(300);
    for (int64_t i = 0; i < 10; ++i) ids[i] = 10'000 + 10 * step + i;
    table.insert({.ids = to_device(ids), .limit = to_device({10})});
  }
  EXPECT_EQ(table.size(), 60);
  EXPECT_EQ(table.capacity(), 64);
  insert(table, multiples(10));
  EXPECT_EQ(table.capacity(), 128);
}

TEST_P(HashTableTest, ScoresStartAnewAfterErase) {
  HashTableOptions counting = options(100);
  counting.score = Score::lfu;
  HashTable table(counting);
  for (int i = 0; i < 5; ++i) insert(table, {3, 4});
  const auto before = host<int64_t>(table.find(to_device({3})));
  const at::Tensor both = table.find(to_device({3, 4}));
  table.write_rows(both, torch::full({2, 2}, 9.0F));
  table.erase(to_device({3}));
  const auto again = insert(table, {3});
  EXPECT_EQ(host<int64_t>(again.slots), before);  // the same slot
  EXPECT_EQ(host<uint8_t>(again.states)[0], table_op::kInserted);
  const HashTableContents contents = table.contents();
  std::map<int64_t, int64_t> scores;
  for (int64_t i = 0; i < 2; ++i) {
    scores[host<int64_t>(contents.ids)[i]] = host<int64_t>(contents.scores)[i];
  }
  EXPECT_EQ(scores, (std::map<int64_t, int64_t>{{3, 1}, {4, 5}}));
  // Its row is the initial one, not that of before.
  EXPECT_EQ(table.read_rows(again.slots).eq(9).sum().item<int64_t>(), 0);
  EXPECT_EQ(table.read_rows(table.find(to_device({4}))).eq(9).sum().item<int64_t>(), 2);
}

TEST_P(HashTableTest, RowsOfAnyLengthStartAndMoveWhole) {
  for (const int64_t dim : {1, 2, 3, 5, 7, 31, 64, 129, 1536}) {
    SCOPED_TRACE(dim);
    HashTableOptions wide = options(400, dim);
    wide.initial_capacity = 64;
    wide.state = dim % 2 == 0 ? 2 * dim : 1;
    wide.init = {.kind = RowInit::uniform, .a = 1, .b = 2, .seed = 5};
    HashTable table(wide);
    const Ids first = multiples(60), second = multiples(300, 9);
    const at::Tensor slots = insert(table, first).slots;
    const at::Tensor before = table.read_rows(slots).cpu();
    EXPECT_TRUE(before.slice(1, 0, dim).ge(1).all().item<bool>());
    EXPECT_TRUE(before.slice(1, 0, dim).lt(2).all().item<bool>());
    EXPECT_EQ(before.slice(1, dim).abs().sum().item<float>(), 0);
    insert(table, second);
    const at::Tensor later = table.find(to_device(first));
    EXPECT_TRUE(table.read_rows(later).cpu().equal(before));
    const at::Tensor missing = torch::full({dim}, 7.0F).to(device());
    const at::Tensor index = to_device({2, 0, 1, 2});
    const at::Tensor some = at::cat({later.slice(0, 0, 2), to_device({-1})});
    const at::Tensor gathered = table.gather(some, index, missing).cpu();
    EXPECT_TRUE(gathered[0].eq(7).all().item<bool>());
    EXPECT_TRUE(gathered[1].equal(before[0].slice(0, 0, dim)));
    EXPECT_TRUE(gathered[2].equal(before[1].slice(0, 0, dim)));
    EXPECT_TRUE(gathered[3].eq(7).all().item<bool>());
  }
}

TEST_P(HashTableTest, RepeatedIdsComeInOnce) {
  HashTableOptions some = options(900);
  some.initial_capacity = 900;
  HashTable table(some);
  if (!table.takes_repeated()) GTEST_SKIP() << "sorts repeated ids";
  std::set<int64_t> model;
  Random random(3);
  for (int step = 0; step < 20; ++step) {
    Ids ids;
    for (int i = 0; i < 700; ++i) ids.push_back(static_cast<int64_t>(random.below(40 * step + 2)));
    HashTable::Insert batch{.ids = to_device(ids)};
    batch.repeated = true;
    const auto inserted = table.insert(batch);
    EXPECT_TRUE(inserted.slots.ge(0).all().item<bool>());
    EXPECT_TRUE(table.find(to_device(ids)).equal(inserted.slots));
    mark(table, ids, inserted.slots);
    model.insert(ids.begin(), ids.end());
    EXPECT_EQ(table.size(), static_cast<int64_t>(model.size()));
    expect_marks(table);
  }
  EXPECT_EQ(table.counts().failed, 0);
}

TEST_P(HashTableTest, LookingUpIsFindingAndGathering) {
  for (const int64_t dim : {1, 6, 128, 132}) {
    SCOPED_TRACE(dim);
    HashTableOptions some = options(400, dim);
    some.init = {.kind = RowInit::uniform, .a = 1, .b = 2, .seed = 5};
    HashTable table(some);
    insert(table, multiples(300, 5));
    const at::Tensor ids = (torch::arange(1000, torch::kLong) * 3 % 700 * 5).to(device());
    const at::Tensor missing = torch::full({dim}, 7.0F).to(device());
    const at::Tensor unknown = torch::ones({1}, torch::kLong).to(device());
    const at::Tensor rows = table.look_up(ids, missing, unknown), slots = table.find(ids);
    EXPECT_TRUE(rows.equal(table.gather(slots, {}, missing)));
    EXPECT_GT(slots.lt(0).sum().item<int64_t>(), 500);
    EXPECT_EQ(unknown.item<int64_t>(), 1 + slots.lt(0).sum().item<int64_t>());
    EXPECT_EQ(table.look_up(to_device({}), missing, unknown).size(0), 0);
  }
}

TEST_P(HashTableTest, ScoresOfAnotherKindAreRefused) {
  HashTableOptions with_step = options(10);
  with_step.score = Score::step;
  HashTable lru(options(10)), step(with_step);
  const at::Tensor one = to_device({1});
  EXPECT_THROW(lru.insert({.ids = one, .scores = one}), UsageError);
  EXPECT_THROW(lru.insert({.ids = one, .step = 1}), UsageError);
  EXPECT_THROW(step.insert({.ids = one}), UsageError);
  EXPECT_EQ(lru.calls() + step.calls(), 0);
}

TEST_P(HashTableTest, IdsThatAreNotAllowedInAreLeftOut) {
  HashTable table(options(100));
  insert(table, {1, 2});
  const at::Tensor allowed = torch::tensor({0, 1, 0, 1}, torch::kByte).to(device());
  const auto inserted = table.insert({.ids = to_device({1, 2, 3, 4}), .allowed = allowed});
  EXPECT_THAT(host<uint8_t>(inserted.states),
              testing::ElementsAre(table_op::kFound, table_op::kFound, table_op::kAbsent,
                                   table_op::kInserted));
  EXPECT_EQ(table.size(), 3);
}

TEST_P(HashTableTest, OptionsOutOfRangeAreNamed) {
  EXPECT_THROW(HashTable{options(0)}, UsageError);
  HashTableOptions bounds = options(10);
  bounds.init = {.kind = RowInit::truncated_normal, .a = 0, .b = 1, .lower = 1, .upper = 2};
  EXPECT_THROW(HashTable{bounds}, UsageError);
  HashTableOptions listed = options(10);
  listed.list_evicted = -1;
  EXPECT_THROW(HashTable{listed}, UsageError);
  const double infinity = std::numeric_limits<double>::infinity();
  for (const RowInit& init :
       {RowInit{.kind = RowInit::uniform, .a = 1, .b = 0.5},
        RowInit{.kind = RowInit::uniform, .a = 0, .b = infinity},
        RowInit{.kind = RowInit::constant, .a = std::numeric_limits<double>::quiet_NaN()},
        RowInit{.kind = RowInit::truncated_normal, .b = 1, .lower = -1, .upper = infinity}}) {
    HashTableOptions wrong = options(10);
    wrong.init = init;
    EXPECT_THROW(HashTable{wrong}, UsageError) << init.a << " " << init.b;
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, HashTableTest, hash_tables::on_cpu());
INSTANTIATE_TEST_SUITE_P(Cuda, HashTableTest, hash_tables::on_gpu());

}  // namespace
}  // namespace seqfuse::embeddings::hash_table_test
