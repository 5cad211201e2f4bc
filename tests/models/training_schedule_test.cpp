#include <gtest/gtest.h>

#include "training/optimizer/schedule.h"

namespace seqfuse::training::training_schedule_test {
namespace {

TEST(Schedule, ConstantAfterLinearWarmUp) {
  config::OptimizerArgs args;
  args.learning_rate = 0.4;
  args.warmup_steps = 4;
  EXPECT_DOUBLE_EQ(learning_rate_at(args, 0, 100), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(args, 1, 100), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate_at(args, 3, 100), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate_at(args, 4, 100), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate_at(args, 99, 100), 0.4);
}

TEST(Schedule, CosineFallsToItsMinimum) {
  config::OptimizerArgs args;
  args.learning_rate = 1;
  args.min_learning_rate = 0.2;
  args.lr_schedule = config::LearningRateSchedule::cosine;
  args.warmup_steps = 10;
  EXPECT_DOUBLE_EQ(learning_rate_at(args, 9, 110), 1);
  EXPECT_DOUBLE_EQ(learning_rate_at(args, 10, 110), 1);
  EXPECT_NEAR(learning_rate_at(args, 60, 110), 0.6, 1e-12);
  EXPECT_NEAR(learning_rate_at(args, 110, 110), 0.2, 1e-12);
  EXPECT_NEAR(learning_rate_at(args, 500, 110), 0.2, 1e-12);
  for (int64_t step = 10; step < 110; ++step) {
    EXPECT_GT(learning_rate_at(args, step, 110), learning_rate_at(args, step + 1, 110));
  }
}

TEST(Schedule, WithoutWarmUpTheFirstStepIsFull) {
  config::OptimizerArgs args;
  args.learning_rate = 0.5;
  EXPECT_DOUBLE_EQ(learning_rate_at(args, 0, 1), 0.5);
}

}  // namespace
}  // namespace seqfuse::training::training_schedule_test
