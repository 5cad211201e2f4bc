#include "data/ingest/id_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/parallel.h"

namespace seqfuse::data::data_id_table_test {
namespace {

std::vector<std::string> by_rank(const IdTable& table) {
  std::vector<std::string> ids;
  for (const uint32_t code : table.sorted_codes()) ids.push_back(table.text(code));
  return ids;
}

TEST(IdTable, RanksIntegersFirstThenTextBytewise) {
  IdTable table;
  IdTable::Cache cache;
  for (const char* id : {"b", "10", "9", "-3", "007", "9223372036854775808", "a", "7", "9"}) {
    table.code(std::string_view(id), cache);
  }
  EXPECT_THAT(by_rank(table),
              testing::ElementsAre("-3", "7", "9", "10", "007", "9223372036854775808", "a", "b"));
}

TEST(IdTable, OneCodeAnIdFromManyThreads) {
  IdTable table;
  constexpr int64_t kTasks = 16, kIds = 20000;
  std::vector<std::vector<uint32_t>> codes(kTasks, std::vector<uint32_t>(kIds));
  parallel_tasks(kTasks, [&](int64_t task) {
    IdTable::Cache cache;
    for (int64_t i = 0; i < kIds; ++i) {
      const int64_t id = (i * 7919 + task * 31) % kIds;
      codes[task][id] = id % 3 == 0 ? table.code("item" + std::to_string(id), cache)
                                    : table.code(id * 1000003, cache);
    }
  });
  for (int64_t task = 1; task < kTasks; ++task) EXPECT_EQ(codes[task], codes[0]);
  EXPECT_EQ(table.size(), kIds);
  for (int64_t id = 0; id < kIds; ++id) {
    EXPECT_EQ(table.text(codes[0][id]),
              id % 3 == 0 ? "item" + std::to_string(id) : std::to_string(id * 1000003));
  }
}

}  // namespace
}  // namespace seqfuse::data::data_id_table_test
