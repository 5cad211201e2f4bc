// Names, counts, durations and random numbers.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <set>
#include <thread>
#include <vector>

#include "base/names.h"
#include "base/progress.h"
#include "base/progress_line.h"
#include "base/random.h"

namespace seqfuse::base_text_test {
namespace {

TEST(Names, NearestWithinReason) {
  const std::vector<std::string> names = {"train_batch_size", "eval_batch_size", "seed"};
  EXPECT_EQ(nearest_name("train_batchsize", names), "train_batch_size");
  EXPECT_EQ(nearest_name("TRAIN-BATCH-SIZE", names), "train_batch_size");
  EXPECT_EQ(nearest_name("sede", names), "seed");  // a transposition
  EXPECT_EQ(nearest_name("learning_rate", names), "");
  EXPECT_EQ(did_you_mean("sead", names), " (did you mean 'seed'?)");
  EXPECT_EQ(did_you_mean("zzzzzzzz", names), "");
  EXPECT_EQ(nearest_name("x", {}), "");
}

TEST(Progress, Formats) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(789), "789");
  EXPECT_EQ(format_count(1234567), "1.23 M");
  EXPECT_EQ(format_count(999.9), "1 k");
  EXPECT_EQ(format_duration(12.34), "12.3 s");
  EXPECT_EQ(format_duration(245), "4:05");
  EXPECT_EQ(format_duration(3723), "1:02:03");
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_duration(std::nan("")), "?");
}

TEST(ProgressLineTest, IsPrintedByTheClockUntilItEnds) {
  if (stderr_is_terminal()) GTEST_SKIP() << "lines are rewritten in place";
  testing::internal::CaptureStderr();
  std::atomic<int> asked = 0;
  {
    const ProgressLine line(
        "test", [&] { return fmt::format("done {}", ++asked); },
        {.terminal = std::chrono::hours(1), .elsewhere = std::chrono::milliseconds(2)});
    while (asked < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const int printed = asked;
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(asked, printed);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.find("[test] done 1\n"), 0U) << text;
  EXPECT_NE(text.find("[test] done 3\n"), std::string::npos) << text;
}

TEST(Random, PhiloxMatchesItsPublishedVectors) {
  // Known answers of philox4x32-10 from the Random123 distribution: counter and key all zeros and
  // ones.
  EXPECT_EQ((Philox{0, 0}(0)), (PhiloxWords{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ((Philox{~0ULL, ~0ULL}(~0ULL)),
            (PhiloxWords{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Random, SequencesAreReproducibleAndDistinct) {
  Random a(7), b(7), other_seed(8), other_stream(7, 1);
  std::vector<uint32_t> first;
  for (int i = 0; i < 100; ++i) first.push_back(a());
  int equal_seed = 0, equal_stream = 0;
  for (const uint32_t value : first) {
    EXPECT_EQ(value, b());
    equal_seed += value == other_seed();
    equal_stream += value == other_stream();
  }
  EXPECT_LE(equal_seed + equal_stream, 1);
}

TEST(Random, UniformMomentsAndRange) {
  Random random(3);
  double sum = 0, normal_sum = 0, normal_square = 0;
  constexpr int kDraws = 200'000;
  for (int i = 0; i < kDraws; ++i) {
    const double x = random.unit();
    ASSERT_GE(x, 0);
    ASSERT_LT(x, 1);
    sum += x;
    const double z = random.normal();
    normal_sum += z;
    normal_square += z * z;
    ASSERT_LT(random.below(17), 17U);
    ASSERT_LT(Philox::below(random(), 5), 5U);
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(1.0 / 12 / kDraws));
  EXPECT_NEAR(normal_sum / kDraws, 0, 5 / std::sqrt(kDraws));
  EXPECT_NEAR(normal_square / kDraws, 1, 5 * std::sqrt(2.0 / kDraws));
}

TEST(Random, ShuffleIsAPermutation) {
  std::vector<int> values(50);
  for (int i = 0; i < 50; ++i) values[static_cast<size_t>(i)] = i;
  const auto before = values;
  Random(5).shuffle(values);
  EXPECT_NE(values, before);
  EXPECT_EQ(std::set<int>(values.begin(), values.end()).size(), 50U);
}

}  // namespace
}  // namespace seqfuse::base_text_test
