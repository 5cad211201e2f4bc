// Device headers compile at run time, without the standard library: mask, time buckets, Philox, and
// a whole attention kernel with everything it includes.
#include <gtest/gtest.h>
#include <nvrtc.h>

#include <string>
#include <vector>

#include "tests/paths.h"

namespace seqfuse {
namespace {

// The PTX of a program; on error "", with the log in the test's message.
std::string ptx_of(const std::string& source, std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--gpu-architecture=compute_80", "-std=c++20", "-default-device",
                           "-I" + test::source_directory() + "/src", "-I" SEQFUSE_CUDA_INCLUDE});
  std::vector<const char*> options;
  for (const std::string& option : more) options.push_back(option.c_str());
  nvrtcProgram program = nullptr;
  EXPECT_EQ(nvrtcCreateProgram(&program, source.c_str(), "test.cu", 0, nullptr, nullptr),
            NVRTC_SUCCESS);
  const nvrtcResult result =
      nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data());
  size_t size = 0;
  nvrtcGetProgramLogSize(program, &size);
  std::string log(size, '\0');
  nvrtcGetProgramLog(program, log.data());
  EXPECT_EQ(result, NVRTC_SUCCESS) << log;
  std::string ptx;
  if (result == NVRTC_SUCCESS) {
    nvrtcGetPTXSize(program, &size);
    ptx.resize(size);
    nvrtcGetPTX(program, ptx.data());
  }
  nvrtcDestroyProgram(&program);
  return ptx;
}

bool has_entry(const std::string& ptx, const std::string& name) {
  return ptx.find(".entry " + name) != std::string::npos;
}

TEST(RunTimeCompilation, MaskAndTimeBuckets) {
  const std::string ptx = ptx_of(R"(
#include "ops/kernels/attention/common/mask.h"
#include "ops/kernels/attention/common/tile_mask.cuh"
#include "ops/kernels/attention/common/time_buckets.h"

using namespace seqfuse::ops::attention;

static_assert(row_mask(MaskOptions{1, 0, 0, true}, MaskedSequence{5, 0, 0}, 2).sees(2));
static_assert(!row_mask(MaskOptions{1, 0, 0, true}, MaskedSequence{5, 0, 0}, 2).sees(3));

extern "C" __global__ void mask_rows(MaskOptions options, MaskedSequence sequence, RowMask* rows) {
  rows[threadIdx.x] = row_mask(options, sequence, threadIdx.x);
}
extern "C" __global__ void buckets(const TimeTables* tables, const double* differences, int* to) {
  to[threadIdx.x] = tables->bucket(differences[threadIdx.x]);
}
)");
  EXPECT_TRUE(has_entry(ptx, "mask_rows"));
  EXPECT_TRUE(has_entry(ptx, "buckets"));
}

TEST(RunTimeCompilation, PhiloxAndDropoutMasks) {
  const std::string ptx = ptx_of(R"(
#include "ops/kernels/step/dropout_mask.cuh"

using namespace seqfuse;
using namespace seqfuse::ops;

static_assert(Philox{0, 0}(0) == PhiloxWords{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});

extern "C" __global__ void factors(cuda::DropoutMask mask, float* to) {
  to[threadIdx.x] = mask.factor(threadIdx.x);
}
extern "C" __global__ void shared(cuda::DropoutMask mask, uint32_t* to) {
  __shared__ cuda::SharedPhilox philox;
  philox.set(mask);
  to[threadIdx.x] = philox(threadIdx.x, kDropoutStream)[0];
}
)");
  EXPECT_TRUE(has_entry(ptx, "factors"));
  EXPECT_TRUE(has_entry(ptx, "shared"));
}

TEST(RunTimeCompilation, KernelsBeforeAttention) {
  const std::string ptx = ptx_of(R"(
#include "ops/kernels/attention/common/bias_sums.cuh"
#include "ops/kernels/attention/common/prepare.cuh"
#include "ops/kernels/attention/common/time_kernels.cuh"
#include "ops/kernels/attention/common/totals.cuh"
)");
  for (const char* const kernel : {"backward_prepare_kernel", "forward_list_kernel", "times_kernel",
                                   "bias_sums_kernel", "add_totals_kernel"})
    EXPECT_NE(ptx.find(kernel), std::string::npos) << kernel;
}

TEST(RunTimeCompilation, AttentionUnderAMask) {
  const std::string ptx = ptx_of(R"(
#include "ops/kernels/attention/sm80/masked_forward.cuh"
#include "ops/kernels/attention/sm80/masked_backward.cuh"

namespace seqfuse::ops::attention::sm80 {
template __global__ void masked_forward_kernel<__half, MaskedForwardShape<32>>(
    const __grid_constant__ MaskedArguments);
}  // namespace seqfuse::ops::attention::sm80
)");
  EXPECT_NE(ptx.find("masked_forward_kernel"), std::string::npos);
}

TEST(RunTimeCompilation, AnAttentionKernel) {
  const std::string ptx = ptx_of(R"(
#include "ops/kernels/attention/sm80/backward.cuh"
#include "ops/kernels/attention/sm80/backward_queries.cuh"
#include "ops/kernels/attention/sm80/backward_wide.cuh"
#include "ops/kernels/attention/sm80/bias_gradient.cuh"
#include "ops/kernels/attention/sm80/forward.cuh"
#include "ops/kernels/attention/sm80/forward_lagging.cuh"
#include "ops/kernels/attention/sm80/forward_pairs.cuh"

namespace seqfuse::ops::attention::sm80 {
template __global__ void forward_kernel<__half, ForwardShape<32, false>>(
    const __grid_constant__ Arguments);
}  // namespace seqfuse::ops::attention::sm80
)");
  EXPECT_NE(ptx.find("forward_kernel"), std::string::npos);
  EXPECT_NE(ptx.find("mma.sync"), std::string::npos);
}

}  // namespace
}  // namespace seqfuse
