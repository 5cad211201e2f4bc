// The choices of choose_config: for each head_dim, on devices with the shared memory of SM 8.0, 9.0
// and 8.6, the kernels and tiles that were measured to be fastest.
#include "ops/kernels/attention/config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <utility>
#include <vector>

namespace seqfuse {
namespace {

using namespace ops::attention;

constexpr Device kA100{.sm = 80, .block_bytes = 163 * 1024};
constexpr Device kH100{.sm = 90, .block_bytes = 227 * 1024};
constexpr Device kShort{.sm = 86, .block_bytes = 99 * 1024};

Problem with_bias(Problem problem) {
  problem.biased = true;
  return problem;
}
Problem unaligned(Problem problem) {
  problem.aligned_inputs = false;
  return problem;
}

void expect(const Device& device, const Problem& problem, const char* kernel,
            const std::vector<int>& numbers) {
  const Config config{.kernel = kernel,
                      .architecture = 80,
                      .head_dim = numbers[0],
                      .tile_queries = numbers[1],
                      .tile_keys = numbers[2],
                      .stages = numbers[3],
                      .warps = numbers[4],
                      .blocks = numbers[5],
                      .shared_bytes = numbers[6]};
  EXPECT_EQ(to_string(choose_config(problem, device)), to_string(config))
      << "sm " << device.sm << ", head_dim " << problem.head_dim << ", biased " << problem.biased
      << ", aligned " << problem.aligned_inputs;
}
void expect_on_all(const Problem& problem, const char* kernel, const std::vector<int>& numbers) {
  for (const Device& device : {kA100, kH100, kShort}) expect(device, problem, kernel, numbers);
}

// Columns: head_dim, queries, keys, stages, warps, blocks, bytes of shared memory.
TEST(AttentionConfig, Forward) {
  const auto forward = [](int head_dim) { return Problem{Pass::forward, head_dim}; };
  const char* const kKernel = "forward_kernel";
  expect_on_all(forward(32), kKernel, {32, 128, 64, 3, 4, 3, 22720});
  expect_on_all(with_bias(forward(32)), kKernel, {32, 128, 64, 3, 4, 2, 30992});
  expect_on_all(forward(64), kKernel, {64, 128, 64, 3, 4, 2, 43200});
  expect_on_all(with_bias(forward(64)), kKernel, {64, 128, 64, 3, 4, 2, 51472});
  expect_on_all(unaligned(forward(64)), kKernel, {64, 128, 64, 3, 4, 2, 43200});

  expect(kA100, forward(128), kKernel, {128, 128, 64, 3, 4, 2, 82624});
  expect(kShort, forward(128), kKernel, {128, 128, 64, 3, 4, 2, 82624});
  expect(kH100, forward(128), "forward_pairs_kernel", {128, 128, 64, 2, 4, 2, 100640});
  expect(kH100, unaligned(forward(128)), kKernel, {128, 128, 64, 3, 4, 2, 82624});
  expect_on_all(with_bias(forward(128)), kKernel, {128, 128, 64, 2, 4, 2, 74512});

  expect(kA100, forward(256), "forward_lagging_kernel", {256, 128, 64, 1, 8, 1, 166064});
  expect(kH100, forward(256), "forward_lagging_kernel", {256, 128, 64, 2, 8, 1, 231600});
  for (const Device& device : {kA100, kH100}) {
    expect(device, unaligned(forward(256)), kKernel, {256, 128, 64, 2, 8, 1, 149696});
    Problem unaligned_output = forward(256);
    unaligned_output.aligned_outputs = false;
    expect(device, unaligned_output, kKernel, {256, 128, 64, 2, 8, 1, 149696});
    expect(device, with_bias(forward(256)), kKernel, {256, 128, 64, 2, 8, 1, 157968});
  }
  for (const Problem& problem : {forward(256), with_bias(forward(256)), unaligned(forward(256))})
    expect(kShort, problem, kKernel, {256, 64, 32, 2, 4, 1, 76768});
}

TEST(AttentionConfig, Backward) {
  const auto backward = [](int head_dim) { return Problem{Pass::backward, head_dim}; };
  const char* const kNarrow = "backward_kernel";
  expect_on_all(backward(32), kNarrow, {32, 64, 128, 2, 4, 2, 49504});
  expect_on_all(with_bias(backward(32)), kNarrow, {32, 64, 128, 2, 4, 2, 57776});
  expect_on_all(backward(64), kNarrow, {64, 64, 128, 2, 4, 2, 82272});
  expect_on_all(unaligned(backward(64)), kNarrow, {64, 64, 128, 2, 4, 2, 82272});
  expect_on_all(with_bias(backward(64)), kNarrow, {64, 64, 128, 2, 4, 2, 90544});

  const char* const kWide = "backward_wide_kernel";
  const std::vector<int> small128{128, 64, 128, 2, 8, 1, 164976};
  const std::vector<int> biased128{128, 64, 128, 2, 8, 1, 156864};
  const std::vector<int> short128{128, 64, 64, 1, 4, 1, 89792};
  expect(kA100, backward(128), kWide, small128);
  expect(kH100, backward(128), kWide, {128, 64, 128, 2, 8, 1, 197744});
  expect(kH100, unaligned(backward(128)), kWide, small128);
  expect(kA100, with_bias(backward(128)), kWide, biased128);
  expect(kH100, with_bias(backward(128)), kWide, {128, 64, 128, 2, 8, 1, 206016});
  expect(kH100, unaligned(with_bias(backward(128))), kWide, biased128);
  const std::vector<int> small256{256, 64, 64, 1, 8, 1, 156784};
  const std::vector<int> biased256{256, 64, 64, 1, 8, 1, 163520};
  const std::vector<int> short256{256, 32, 32, 2, 8, 1, 93888};
  expect(kA100, backward(256), kWide, small256);
  expect(kH100, backward(256), kWide, {256, 64, 64, 2, 8, 1, 205936});
  expect(kH100, unaligned(backward(256)), kWide, small256);
  expect(kA100, with_bias(backward(256)), kWide, biased256);
  expect(kH100, with_bias(backward(256)), kWide, {256, 64, 64, 2, 8, 1, 212672});
  for (const bool biased : {false, true}) {
    for (const bool aligned : {false, true}) {
      Problem problem{Pass::backward, 128, biased, aligned};
      expect(kShort, problem, kWide, short128);
      problem.head_dim = 256;
      expect(kShort, problem, kWide, short256);
    }
  }
}

TEST(AttentionConfig, DqAlone) {
  const auto queries = [](int head_dim) { return Problem{Pass::backward_queries, head_dim}; };
  const char* const kKernel = "backward_queries_kernel";
  expect_on_all(queries(32), kKernel, {32, 128, 32, 2, 4, 2, 26816});
  expect_on_all(with_bias(queries(32)), kKernel, {32, 128, 32, 2, 4, 2, 34320});
  expect_on_all(queries(64), kKernel, {64, 128, 32, 2, 4, 2, 51392});
  expect_on_all(with_bias(queries(64)), kKernel, {64, 128, 32, 2, 4, 2, 58896});
  for (const Device& device : {kA100, kH100}) {
    expect(device, queries(128), kKernel, {128, 128, 32, 2, 4, 2, 100544});
    expect(device, with_bias(queries(128)), kKernel, {128, 128, 32, 2, 4, 2, 108048});
    expect(device, queries(256), kKernel, {256, 64, 32, 2, 4, 1, 136336});
    expect(device, with_bias(queries(256)), kKernel, {256, 64, 32, 2, 4, 1, 142304});
  }
  for (const bool biased : {false, true}) {
    expect(kShort, {Pass::backward_queries, 128, biased}, kKernel, {128, 128, 32, 1, 4, 2, 91664});
    expect(kShort, {Pass::backward_queries, 256, biased}, kKernel, {256, 32, 32, 1, 2, 1, 73424});
  }
}

TEST(AttentionConfig, BiasGradient) {
  const auto gradient = [](int head_dim) {
    return with_bias(Problem{Pass::bias_gradient, head_dim});
  };
  const char* const kKernel = "bias_gradient_kernel";
  expect_on_all(gradient(32), kKernel, {32, 64, 64, 2, 4, 2, 62640});
  expect_on_all(gradient(64), kKernel, {64, 64, 64, 2, 4, 2, 95408});
  for (const Device& device : {kA100, kH100}) {
    expect(device, gradient(128), kKernel, {128, 64, 64, 2, 4, 1, 160944});
    expect(device, gradient(256), kKernel, {256, 64, 64, 1, 4, 1, 160944});
  }
  expect(kShort, gradient(128), kKernel, {128, 64, 64, 1, 4, 1, 95408});
  expect(kShort, gradient(256), kKernel, {256, 64, 64, 1, 4, 1, 95408});
}

TEST(AttentionConfig, HeadDimsAreRoundedUp) {
  for (const auto& [head_dim, width] :
       {std::pair{1, 32}, {24, 32}, {33, 64}, {50, 64}, {100, 128}, {129, 256}, {256, 256}}) {
    EXPECT_EQ(tile_width(head_dim), width);
    EXPECT_EQ(choose_config({Pass::forward, head_dim}, kA100),
              choose_config({Pass::forward, width}, kA100));
  }
}

TEST(AttentionConfig, WorkspacesHaveRoomForTheTilesOfEveryDevice) {
  for (const int head_dim : {32, 64, 128, 256}) {
    for (const Pass pass :
         {Pass::forward, Pass::backward, Pass::backward_queries, Pass::bias_gradient}) {
      const bool of_keys = pass == Pass::backward || pass == Pass::bias_gradient;
      const int least = least_tile_rows(pass, head_dim);
      for (const Device& device : {kA100, kH100, kShort}) {
        const Config config = choose_config({pass, head_dim}, device);
        EXPECT_GE(of_keys ? config.tile_keys : config.tile_queries, least);
        EXPECT_LE(config.shared_bytes, device.block_bytes);
      }
    }
  }
}

TEST(AttentionConfig, DevicesWithTooLittleAreRefused) {
  EXPECT_THROW(choose_config({Pass::forward, 64}, {.sm = 75, .block_bytes = 99 * 1024}),
               std::runtime_error);
  EXPECT_THROW(choose_config({Pass::forward, 64}, {.sm = 80, .block_bytes = 48 * 1024}),
               std::runtime_error);
}

TEST(AttentionConfig, IsPrinted) {
  EXPECT_EQ(to_string(choose_config({Pass::forward, 256}, kA100)),
            "forward_lagging_kernel of sm80: head_dim 256, tiles of 128 queries and 64 keys, 1 "
            "stage, 8 warps, 1 block per SM, 166064 bytes of shared memory");
}

TEST(AttentionConfig, IsLoggedOnceWhereWanted) {
  ::setenv("SEQFUSE_LOG_KERNELS", "1", 1);
  const Problem plain{Pass::forward, 48}, biased{Pass::backward, 48, true, false};
  testing::internal::CaptureStderr();
  for (int n = 0; n < 2; ++n) {
    for (const Problem& problem : {plain, biased})
      log_choice(problem, choose_config(problem, kA100), DType::bf16);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[kernels] attention forward, bfloat16, head_dim 48: " +
                to_string(choose_config(plain, kA100)) +
                "\n[kernels] attention backward, bfloat16, head_dim 48, biased, unaligned: " +
                to_string(choose_config(biased, kA100)) + "\n");
}

}  // namespace
}  // namespace seqfuse
