// The memory that a dynamic table will take.
#include "embeddings/dynamic/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace seqfuse::embeddings::memory_plan_test {
namespace {

HashTableOptions options_of(int64_t capacity, int64_t dim) {
  HashTableOptions options;
  options.capacity = capacity;
  options.dim = dim;
  return options;
}

// 1000 rows: 9 buckets of 128 slots; a slot has 21 bytes besides its row.
TEST(MemoryPlan, CountsWhatATableAllocates) {
  HashTableOptions options = options_of(1000, 3);
  options.initial_capacity = 1000;
  options.state = 6;
  const MemoryPlan plan = plan_memory(options, 1000);
  EXPECT_EQ(plan.row_bytes, 48);  // 9 numbers, rounded up to 12
  EXPECT_EQ(plan.full.device, 9 * 128 * (48 + 21));
  EXPECT_EQ(plan.full.device, HashTable(options).bytes());
  options.device_rows = 100;
  EXPECT_EQ(plan_memory(options, 1000).full.device,
            plan.full.device);  // on the CPU it is all the same
  options.device = at::Device("cuda");
  const MemoryPlan split = plan_memory(options, 1000);
  EXPECT_EQ(split.full.device, 9 * 128 * 21 + 100 * 48);
  EXPECT_EQ(split.full.host, (9 * 128 - 100) * 48);
  options.cached = true;
  const MemoryPlan cached = plan_memory(options, 1000);
  EXPECT_EQ(cached.full.device, 9 * 128 * 21 + 128 * (48 + 21 + 8));
  EXPECT_EQ(cached.full.host, 9 * 128 * 48);
}

TEST(MemoryPlan, ErrorsSayWhatWouldFit) {
  HashTableOptions options = options_of(1'000'000, 128);
  options.state = 256;
  const MemoryPlan plan = plan_memory(options, options.capacity);
  EXPECT_EQ(why_memory_does_not_suffice(plan, {.device = 2'000'000'000, .host = 0}), "");
  const std::string why = why_memory_does_not_suffice(plan, {.device = 100'000'000, .host = 0});
  EXPECT_THAT(why, testing::AllOf(testing::HasSubstr("1000000 rows take 1.66 GB"),
                                  testing::HasSubstr("100 MB are free"),
                                  testing::HasSubstr("at most 60120")));
  options.capacity = 60'120;
  EXPECT_EQ(why_memory_does_not_suffice(plan_memory(options, 60'120), {.device = 100'000'000}), "");
  options.device = at::Device("cuda");
  options.device_rows = 10;
  EXPECT_THAT(why_memory_does_not_suffice(plan_memory(options, 60'120),
                                          {.device = 100'000'000, .host = 1'000'000}),
              testing::HasSubstr("host's memory"));
}

}  // namespace
}  // namespace seqfuse::embeddings::memory_plan_test
