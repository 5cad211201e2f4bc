// The choices of choose_config for attention under a mask, and what a problem says of its tensors.
#include "ops/kernels/attention/masked_config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace seqfuse::masked_config_test {
namespace {

using namespace ops::attention;

constexpr Device kA100{.sm = 80, .block_bytes = 163 * 1024};
constexpr Device kH100{.sm = 90, .block_bytes = 227 * 1024};
constexpr Device kShort{.sm = 86, .block_bytes = 99 * 1024};
constexpr Device kNewer{.sm = 100, .block_bytes = 227 * 1024};

constexpr MaskedPass kPasses[] = {MaskedPass::forward, MaskedPass::forward_rows,
                                  MaskedPass::backward_queries, MaskedPass::backward_keys};

std::string chosen(MaskedPass pass, int head_dim, const Device& device, bool copied_tiles = true) {
  return to_string(choose_config(MaskedProblem{pass, head_dim, copied_tiles}, device));
}

TEST(MaskedConfig, OfSm80IsTheNarrowestThatIsWideEnough) {
  const std::string forward = "masked_forward_kernel of sm80: head_dim ";
  const std::string queries = "masked_backward_queries_kernel of sm80: head_dim ";
  const std::string keys = "masked_backward_keys_kernel of sm80: head_dim ";
  const std::string tiles = ", tiles of 64 queries and 64 keys, ";
  for (const Device& device : {kA100, kShort, kNewer}) {
    EXPECT_EQ(chosen(MaskedPass::forward, 8, device),
              forward + "32" + tiles +
                  "3 stages, 2 warps, 4 blocks per SM, 16384 bytes of shared memory");
    EXPECT_EQ(chosen(MaskedPass::forward, 40, device),
              forward + "64" + tiles +
                  "3 stages, 2 warps, 4 blocks per SM, 32768 bytes of shared memory");
    EXPECT_EQ(chosen(MaskedPass::forward, 96, device),
              forward + "96" + tiles +
                  "2 stages, 2 warps, 3 blocks per SM, 49152 bytes of shared memory");
    EXPECT_EQ(chosen(MaskedPass::forward, 128, device),
              forward + "128" + tiles +
                  "2 stages, 4 warps, 3 blocks per SM, 49152 bytes of shared memory");
    EXPECT_EQ(chosen(MaskedPass::backward_queries, 64, device),
              queries + "64" + tiles +
                  "2 stages, 4 warps, 3 blocks per SM, 51200 bytes of shared memory");
    EXPECT_EQ(
        chosen(MaskedPass::backward_keys, 104, device),
        keys + "128" + tiles + "1 stage, 4 warps, 2 blocks per SM, 66560 bytes of shared memory");
  }
}

// The kernel by rows has no tiles in shared memory, so its line has no stages.
TEST(MaskedConfig, OfRows) {
  for (const Device& device : {kA100, kH100}) {
    EXPECT_EQ(chosen(MaskedPass::forward_rows, 64, device),
              "masked_rows_kernel of sm80: head_dim 64, tiles of 4 queries and 4 keys, 4 warps, 0 "
              "bytes of shared memory");
    EXPECT_EQ(choose_config(MaskedProblem{MaskedPass::forward_rows, 72}, device).tile_keys, 2);
  }
}

TEST(MaskedConfig, OfSm90) {
  if (choose_config(MaskedProblem{MaskedPass::forward, 64}, kH100).architecture < 90)
    GTEST_SKIP() << "built without kernels for SM 9.0";
  const std::string tiles = " of sm90: head_dim 64, tiles of 64 queries and 64 keys, 2 stages, ";
  EXPECT_EQ(
      chosen(MaskedPass::forward, 64, kH100),
      "masked_forward_kernel" + tiles + "4 warps, 5 blocks per SM, 40976 bytes of shared memory");
  EXPECT_EQ(chosen(MaskedPass::backward_queries, 40, kH100),
            "masked_backward_queries_kernel" + tiles +
                "4 warps, 4 blocks per SM, 49168 bytes of shared memory");
  EXPECT_EQ(chosen(MaskedPass::backward_keys, 64, kH100),
            "masked_backward_keys_kernel" + tiles +
                "4 warps, 3 blocks per SM, 51216 bytes of shared memory");
  // Others are run by those of SM 8.0.
  for (const MaskedPass pass : kPasses) {
    for (const int head_dim : {32, 72})
      EXPECT_EQ(chosen(pass, head_dim, kH100), chosen(pass, head_dim, kA100));
    EXPECT_EQ(chosen(pass, 64, kH100, false), chosen(pass, 64, kA100));
  }
}

TEST(MaskedConfig, FitsTheDevice) {
  for (const MaskedPass pass : kPasses) {
    for (const Device& device : {kA100, kH100, kShort, kNewer}) {
      for (int head_dim = 8; head_dim <= 128; head_dim += 8) {
        const Config config = choose_config(MaskedProblem{pass, head_dim}, device);
        EXPECT_GE(config.head_dim, head_dim);
        EXPECT_LE(config.shared_bytes, device.block_bytes);
        EXPECT_LE(config.architecture, device.sm);
      }
    }
    EXPECT_THROW(choose_config(MaskedProblem{pass, 64}, {.sm = 75, .block_bytes = 64 * 1024}),
                 std::runtime_error);
    EXPECT_THROW(choose_config(MaskedProblem{pass, 136}, kA100), std::runtime_error);
  }
}

// 2 sequences of 4 heads, 2 of keys, of 256 queries and 512 keys.
ops::MaskedAttentionParams params() {
  ops::MaskedAttentionParams p{.batch = 2, .heads = 4, .key_heads = 2, .head_dim = 64};
  p.mask.queries = 256;
  p.mask.keys = 512;
  p.q = p.dout = {.batch_stride = 65536, .head_stride = 16384, .row_stride = 64};
  p.k = p.v = {.batch_stride = 65536, .head_stride = 32768, .row_stride = 64};
  return p;
}

TEST(MaskedProblemOf, SaysWhetherTilesCanBeCopied) {
  const auto copied = [](auto&& change, MaskedPass pass = MaskedPass::forward) {
    ops::MaskedAttentionParams p = params();
    change(p);
    const MaskedProblem problem = problem_of(pass, p);
    EXPECT_EQ(problem.head_dim, 64);
    EXPECT_EQ(problem.pass, pass);
    return problem.copied_tiles;
  };
  using Params = ops::MaskedAttentionParams;
  EXPECT_TRUE(copied([](Params&) {}));
  EXPECT_FALSE(copied([](Params& p) { p.q.row_stride = 68; }));
  EXPECT_FALSE(copied([](Params& p) { p.k.head_stride = 0; }));
  EXPECT_FALSE(copied([](Params& p) { p.v.batch_stride = -65536; }));
  EXPECT_FALSE(copied([](Params& p) { p.mask.queries = 0; }));
  EXPECT_TRUE(copied([](Params& p) { p.mask.step = 4; }));
  EXPECT_FALSE(copied([](Params& p) { p.mask.step = 3; }));
  EXPECT_TRUE(copied([](Params& p) { p.batch = 1, p.q.batch_stride = 3; }));  // never used
  // The gradient of the output is read by backward kernels only.
  const auto odd_dout = [](Params& p) { p.dout.row_stride = 65; };
  EXPECT_TRUE(copied(odd_dout));
  EXPECT_FALSE(copied(odd_dout, MaskedPass::backward_keys));
  EXPECT_FALSE(copied(odd_dout, MaskedPass::backward_queries));
}

TEST(MaskedConfig, IsLoggedOnceWhereWanted) {
  ::setenv("SEQFUSE_LOG_KERNELS", "1", 1);
  testing::internal::CaptureStderr();
  for (int n = 0; n < 2; ++n) {
    for (const MaskedPass pass : kPasses) {
      const MaskedProblem problem{pass, 48, false};
      log_choice(problem, choose_config(problem, kH100), DType::f16);
    }
  }
  const auto line = [](const char* name, MaskedPass pass) {
    return "[kernels] masked_attention " + std::string(name) +
           ", float16, head_dim 48, tiles that cannot be copied: " + chosen(pass, 48, kA100) + "\n";
  };
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            line("forward", MaskedPass::forward) +
                line("forward by rows", MaskedPass::forward_rows) +
                line("backward of q", MaskedPass::backward_queries) +
                line("backward of k and v", MaskedPass::backward_keys));
}

}  // namespace
}  // namespace seqfuse::masked_config_test
