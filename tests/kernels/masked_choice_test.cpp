// Which way attention under a mask takes, by the estimates alone.
#include "ops/kernels/attention/masked_choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "base/error.h"

namespace seqfuse::masked_choice_test {
namespace {

using ops::attention::choose_way;
using ops::attention::estimate;
using ops::attention::MaskedWay;
using ops::attention::MaskedWork;

// 16 sequences of 12 heads of 64 under one mask of n tokens.
MaskedWork work(int64_t n, int64_t visited, int64_t allowed) {
  return {.batch = 16,
          .heads = 12,
          .head_dim = 64,
          .queries = n,
          .keys = n,
          .query_blocks = n / 64,
          .visited = visited,
          .allowed = allowed};
}

class MaskedChoice : public testing::Test {
 protected:
  void SetUp() override { unsetenv("SEQFUSE_MASKED_ATTENTION"); }
  void TearDown() override { unsetenv("SEQFUSE_MASKED_ATTENTION"); }
};

TEST_F(MaskedChoice, TakesRowsForFewPairsAndBlocksForMany) {
  EXPECT_EQ(choose_way(work(4096, 190, 4096 * 129)), MaskedWay::blocks);  // a window
  EXPECT_EQ(choose_way(work(4096, 4000, 4096 * 4)), MaskedWay::rows);     // a sparse graph
  EXPECT_EQ(choose_way(work(0, 0, 0)), MaskedWay::blocks);
}

TEST_F(MaskedChoice, TakesTheLibraryOnlyForPlainMasksThatItTakes) {
  MaskedWork causal = work(1024, 136, 1024 * 1025 / 2);
  causal.plain = masks::Plain::causal;
  EXPECT_EQ(choose_way(causal), MaskedWay::blocks);
  EXPECT_TRUE(std::isinf(estimate(causal).library));
  causal.library_takes = true;
  EXPECT_EQ(choose_way(causal), MaskedWay::library);
}

TEST_F(MaskedChoice, CanBeOverridden) {
  const MaskedWork window = work(4096, 190, 4096 * 129);
  setenv("SEQFUSE_MASKED_ATTENTION", "rows", 1);
  EXPECT_EQ(choose_way(window), MaskedWay::rows);
  setenv("SEQFUSE_MASKED_ATTENTION", "library", 1);
  EXPECT_EQ(choose_way(window), MaskedWay::blocks);  // no such mask there
  setenv("SEQFUSE_MASKED_ATTENTION", "", 1);
  EXPECT_EQ(choose_way(window), MaskedWay::blocks);
  setenv("SEQFUSE_MASKED_ATTENTION", "row", 1);
  EXPECT_THROW(choose_way(window), UsageError);
}

}  // namespace
}  // namespace seqfuse::masked_choice_test
