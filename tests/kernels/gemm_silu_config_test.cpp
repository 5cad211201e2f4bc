// Which kernel computes a product with SiLU.
#include "ops/kernels/gemm/gemm_silu_config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>

namespace seqfuse::gemm_silu_config_test {
namespace {

using ops::gemm::choose_config;
using ops::gemm::Config;
using ops::gemm::Problem;

constexpr Problem kProblem{.n = 2048, .k = 512};
constexpr const char* kSm80 =
    "gemm_silu_kernel of sm80: tiles of 128 x 128, 32 of k at a time, 4 stages, 4 warps, 2 blocks "
    "per SM, 65536 bytes of shared memory";

TEST(GemmSiluConfig, IsOfTheNewestFamilyThatRuns) {
  for (const int sm : {80, 86, 89, 100, 120})
    EXPECT_EQ(to_string(choose_config(kProblem, sm)), kSm80);
  EXPECT_THROW(choose_config(kProblem, 75), std::runtime_error);
}

TEST(GemmSiluConfig, OfSm90) {
  const Config config = choose_config(kProblem, 90);
  if (config.architecture < 90) GTEST_SKIP() << "built without kernels for SM 9.0";
  EXPECT_EQ(config.tile_m, 128);
  EXPECT_EQ(config.tile_n, 128);
  EXPECT_EQ(config.tile_k, 64);
  EXPECT_EQ(config.warps, 12);  // one group loads, two multiply
  EXPECT_GE(config.stages, 3);
  EXPECT_GE(config.shared_bytes, config.stages * 2 * 128 * 64 * 2);
  EXPECT_LE(config.shared_bytes, 227 * 1024);
}

TEST(GemmSiluConfig, IsLoggedOnceWhereWanted) {
  ::setenv("SEQFUSE_LOG_KERNELS", "1", 1);
  testing::internal::CaptureStderr();
  for (int n = 0; n < 2; ++n) log_choice(kProblem, choose_config(kProblem, 80), DType::bf16);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            std::string("[kernels] gemm_silu, bfloat16, n 2048, k 512: ") + kSm80 + "\n");
}

}  // namespace
}  // namespace seqfuse::gemm_silu_config_test
