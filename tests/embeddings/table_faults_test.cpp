// Faults of dynamic tables: memory that cannot be had or pinned, tables that do not fit together, numbers
// that are not finite, ids without a place, values under concurrent upserts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <memory>
#include <string>

#include "base/error.h"
#include "embeddings/dynamic/memory_plan.h"
#include "embeddings/dynamic_placement.h"
#include "tests/missing_gpu.h"
#include "training/checkpoint/weights.h"

#ifdef SEQFUSE_HAS_CUDA
#include <cuda_runtime_api.h>
#include <dlfcn.h>

// In the place of the runtime's: refuses while a test says so.
namespace seqfuse::embeddings::table_faults_test {
std::atomic<bool> refuse_pinned = false;
}  // namespace seqfuse::embeddings::table_faults_test

extern "C" cudaError_t CUDARTAPI cudaHostAlloc(void** memory, size_t bytes, unsigned int flags) {
  if (seqfuse::embeddings::table_faults_test::refuse_pinned) return cudaErrorMemoryAllocation;
  static const auto next = reinterpret_cast<cudaError_t (*)(void**, size_t, unsigned int)>(
      dlsym(RTLD_NEXT, "cudaHostAlloc"));
  return next(memory, bytes, flags);
}
#endif

namespace seqfuse::embeddings::table_faults_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

HashTableOptions options_of(int64_t capacity, int64_t dim, at::Device device = at::kCPU) {
  HashTableOptions options;
  options.name = "item";
  options.capacity = capacity;
  options.dim = dim;
  options.device = device;
  options.init = {.kind = RowInit::normal, .a = 0, .b = 0.5, .seed = 3};
  return options;
}

template <class E, class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "no such error";
}

class TableFaults : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (device().is_cuda()) {
      if (const char* why = test::missing_gpu()) GTEST_SKIP() << why;
    }
  }
  at::Device device() const { return at::Device(GetParam()); }
  at::Tensor on_device(const at::Tensor& tensor) const { return tensor.to(device()); }
};

// The ids of the batch are one number, expanded: 2^50 of them.
TEST_P(TableFaults, MemoryThatCannotBeHadWhileGrowingChangesNothing) {
  HashTableOptions options = options_of(int64_t{1} << 52, 3, device());
  options.initial_capacity = 100;
  HashTable table(options);
  const at::Tensor ids = on_device(torch::arange(60, torch::kLong));
  table.write_rows(table.insert({.ids = ids}).slots, torch::ones({60, 3}));
  const HashTableContents before = table.contents();
  const at::Tensor many = on_device(torch::zeros({1}, torch::kLong)).expand({int64_t{1} << 50});
  EXPECT_THAT(error_of<c10::Error>([&] { table.insert({.ids = many}); }),
              AllOf(HasSubstr("table item: memory for"), HasSubstr("rows of 16 bytes")));
  const HashTableContents after = table.contents();
  EXPECT_TRUE(after.ids.equal(before.ids));
  EXPECT_TRUE(after.rows.equal(before.rows));
  EXPECT_TRUE(after.touched.equal(before.touched));
  EXPECT_EQ(after.calls, before.calls);
  EXPECT_EQ(table.capacity(), 100);
  // It goes on, and grows as far as it must.
  table.insert({.ids = on_device(torch::arange(50, 130, torch::kLong))});
  EXPECT_EQ(table.size(), 130);
  EXPECT_EQ(table.capacity(), 200);
}

// Two tables of all rows may not fit.
TEST_P(TableFaults, AnEmptyTableIsSmallBeforeAnotherIsLoaded) {
  DynamicRowsOptions options;
  options.table = options_of(50'000, 3, device());
  DynamicRows saved(options), rows(options);
  saved.fetch(on_device(torch::arange(10, torch::kLong)), {});
  const int64_t whole = rows.table().bytes();
  rows.table().shrink();
  EXPECT_LT(rows.table().bytes(), whole / 100);
  rows.load(saved.contents());
  EXPECT_EQ(rows.table().bytes(), whole);
  EXPECT_TRUE(rows.contents().table.rows.equal(saved.contents().table.rows));
  EXPECT_EQ(rows.table().calls(), 1);
}

// A value encodes its key; ids come and go by the million while the table is full.
TEST_P(TableFaults, AValueBelongsToItsKeyAmongMillionsOfUpserts) {
  constexpr int64_t kBatch = 1 << 14, kIds = 150'000;
  for (const bool cached : {false, true}) {
    HashTableOptions options = options_of(40'000, 2, device());
    options.cached = cached;
    if (cached) options.device_rows = 10'000;
    HashTable table(options);
    torch::manual_seed(3);
    const int64_t steps = device().is_cuda() ? 400 : 24;
    for (int64_t step = 0; step < steps; ++step) {
      const at::Tensor ids =
          on_device(torch::randperm(kIds, torch::kLong)).slice(0, 0, kBatch).mul(8);
      const HashTable::Inserted inserted = table.insert({.ids = ids});
      const at::Tensor rows = table.read_rows(inserted.slots), value = ids.to(torch::kFloat);
      const at::Tensor found = inserted.states.eq(ops::hash_table::kFound);
      ASSERT_TRUE(rows.select(1, 0).eq(value).logical_or(found.logical_not()).all().item<bool>())
          << "step " << step;
      table.write_rows(inserted.slots, at::stack({value, value}, 1));
    }
    const HashTableContents contents = table.contents();
    EXPECT_EQ(contents.size(), 40'000);
    EXPECT_TRUE(contents.rows.select(1, 0).equal(contents.ids.to(torch::kFloat)));
    EXPECT_TRUE(contents.rows.select(1, 1).equal(contents.ids.to(torch::kFloat)));
    EXPECT_GT(table.counts().evicted, steps * kBatch / 4);
    EXPECT_EQ(table.counts().failed, 0);
  }
}

TEST_P(TableFaults, ContentsOfATableThatHasFailedAreAnError) {
  DynamicRowsOptions options;
  options.table = options_of(10, 3, device());
  DynamicRows rows(options);
  const at::Tensor many = on_device(torch::arange(25, torch::kLong));
  EXPECT_THAT(error_of<Error>([&] {
                rows.fetch(many, {});  // on a GPU nothing is known yet
                rows.contents();
              }),
              HasSubstr("15 ids found no place"));
  EXPECT_EQ(rows.contents().table.size(), 10);  // it was reported
}

TEST_P(TableFaults, NumbersThatAreNotFiniteAreFoundInRowsAndState) {
  DynamicRowsOptions options;
  options.table = options_of(100, 3, device());
  DynamicTable table(options, 50, distributed::ProcessGroup::single());
  table.make_state(OptimizerKind::adam, false);
  table.fetch(on_device(torch::arange(20, torch::kLong)));
  training::TableMap given{{"item", table.contents()}};
  EXPECT_EQ(training::table_not_finite({&table}, given), "");
  given.at("item").state.at("exp_avg")[7][1] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(training::table_not_finite({&table}, given), "exp_avg of tables.item");
  given.at("item").rows[19][2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(training::table_not_finite({&table}, given), "tables.item");
}

INSTANTIATE_TEST_SUITE_P(Cpu, TableFaults, testing::Values("cpu"));
INSTANTIATE_TEST_SUITE_P(Cuda, TableFaults, testing::Values("cuda"));

#ifdef SEQFUSE_HAS_CUDA
TEST(PinnedRowsCuda, RowsThatCannotBePinnedAreInTheMemoryOfTheGpu) {
  if (const char* why = test::missing_gpu()) GTEST_SKIP() << why;
  for (const bool cached : {false, true}) {
    HashTableOptions options = options_of(1000, 3, at::kCUDA);
    options.device_rows = 100;
    options.cached = cached;
    const at::Tensor ids = torch::arange(900, torch::kLong).cuda();
    const auto rows_of = [&](HashTable table) {
      return table.read_rows(table.insert({.ids = ids}).slots);
    };
    HashTable pinned(options);
    EXPECT_GT(pinned.host_bytes(), 0);
    const at::Tensor expected = rows_of(std::move(pinned));
    refuse_pinned = true;
    testing::internal::CaptureStderr();
    HashTable refused(options);
    const std::string log = testing::internal::GetCapturedStderr();
    refuse_pinned = false;
    EXPECT_THAT(log, HasSubstr("cannot be pinned"));
    EXPECT_EQ(refused.host_bytes(), 0);
    EXPECT_TRUE(rows_of(std::move(refused)).equal(expected));
  }
}

// Kernels that were enqueued go on reading rows of a table that is gone.
TEST(PinnedRowsCuda, RowsOfATableThatIsGoneAreReadToTheEnd) {
  if (const char* why = test::missing_gpu()) GTEST_SKIP() << why;
  constexpr int64_t kRows = 200'000;
  const at::Tensor ids = torch::arange(kRows, torch::kLong).cuda();
  at::Tensor rows;
  {
    HashTableOptions options = options_of(kRows, 128, at::kCUDA);
    options.device_rows = 0;
    options.initial_capacity = kRows;
    HashTable table(options);
    const at::Tensor slots = table.insert({.ids = ids}).slots;
    table.write_rows(slots, torch::full({kRows, 128}, 7.0F));
    rows = table.read_rows(slots);
  }
  EXPECT_TRUE(rows.eq(7).all().item<bool>());
}
#endif

TEST(GrownCapacity, OldAndNewNeverHoldMoreThanOneAndAHalfTimesTheCapacity) {
  EXPECT_EQ(grown_capacity(64, 100, 1000), 128);
  EXPECT_EQ(grown_capacity(64, 300, 1000), 300);
  EXPECT_EQ(grown_capacity(256, 260, 1000), 1000);  // 512 would have to grow once more
  EXPECT_EQ(grown_capacity(250, 260, 1000), 500);
  for (const int64_t capacity : {1000, 1023, 65'537}) {
    for (int64_t rows = 1; rows < capacity;) {
      EXPECT_LE(rows, capacity / 2 + 1);
      rows = grown_capacity(rows, rows + 1, capacity);
    }
  }
}

TEST(MemoryWhileGrowing, IsThatOfBothTables) {
  HashTableOptions options = options_of(100'000, 12);  // rows of 48 bytes
  options.initial_capacity = 1000;
  const MemoryPlan plan = plan_memory(options, options.capacity);
  HashTableOptions half = options;
  half.initial_capacity = half.capacity = 50'000;
  EXPECT_EQ(plan.growing.device,
            plan.full.device + HashTable(half).bytes() + 50'000 * (5 * 8 + 4 + 1));
  const MemoryBytes enough{.device = plan.growing.device}, less{.device = plan.growing.device - 1};
  EXPECT_TRUE(can_grow(plan, enough));
  EXPECT_FALSE(can_grow(plan, less));
  EXPECT_EQ(why_memory_does_not_suffice(plan, less), "");  // allocated at once it fits
  options.initial_capacity = options.capacity;
  const MemoryPlan whole = plan_memory(options, options.capacity);
  EXPECT_EQ(whole.growing.device, whole.full.device);
}

// Keys stay in GPU memory, so rows alone cannot use all that is free.
TEST(MemoryWhileGrowing, WhatIsSaidToFitDoes) {
  HashTableOptions options = options_of(10'000'000, 128, at::kCUDA);
  options.state = 256;
  const MemoryPlan plan = plan_memory(options, options.capacity);
  const MemoryBytes free{.device = 5'000'000'000, .host = 20'000'000'000};
  const std::string why = why_memory_does_not_suffice(plan, free);
  const auto number_after = [&](const std::string& text) {
    const size_t at = why.find(text);
    return at == std::string::npos ? -1 : std::stoll(why.substr(at + text.size()));
  };
  const int64_t capacity = number_after("item_vocab_size_or_capacity to at most ");
  EXPECT_EQ(why_memory_does_not_suffice(plan_memory(options, capacity), free), "");
  EXPECT_NE(why_memory_does_not_suffice(plan_memory(options, capacity + 1), free), "");
  const int64_t here = number_after("item_vocab_gpu_capacity of at most ");
  ASSERT_GT(here, 0) << why;
  options.device_rows = here;
  EXPECT_EQ(why_memory_does_not_suffice(plan_memory(options, options.capacity), free), "");
  options.device_rows = here + 1;
  EXPECT_NE(why_memory_does_not_suffice(plan_memory(options, options.capacity), free), "");
  // The host has no room for the others either.
  EXPECT_THAT(why_memory_does_not_suffice(plan, {.device = free.device, .host = 1'000'000}),
              testing::Not(HasSubstr("item_vocab_gpu_capacity")));
}

// Each takes .6 of what is free: 91 bytes for a row of 64, its key, and the slots that stay empty.
TEST(TablesTogether, TheSecondIsRefusedForWhatTheFirstWillTake) {
  const int64_t free = free_memory(at::kCPU).device;
  const int64_t capacity = static_cast<int64_t>(0.6 * static_cast<double>(free)) / 91;
  const DynamicPlacement dynamic{.capacity = capacity, .optimizer = OptimizerKind::sgd};
  Placement placement;
  const auto make = [&](const std::string& name) {
    return make_dynamic_table(name, capacity, 16, {.spread = 0.1}, dynamic, placement);
  };
  const auto first = make("item");  // allocates only a part
  EXPECT_THAT(error_of<Error>([&] { make("user"); }),
              AllOf(HasSubstr("table user: "), HasSubstr("other tables may still take")));
}

}  // namespace
}  // namespace seqfuse::embeddings::table_faults_test
