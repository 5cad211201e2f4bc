// The ranges that a profiler sees while a sentence is encoded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "base/file.h"
#include "tests/cli/bert_folder.h"
#include "tests/cli/seqfuse_process.h"

namespace seqfuse::trace_range_test {

#ifdef SEQFUSE_NVTX_RECORDER
TEST(TraceRanges, AreTheOperatorsOfALayer) {
  const TemporaryDirectory directory;
  const std::string folder = directory.path().string();
  BertFolder(40).write(directory.path());
  const Outcome outcome =
      run_in_shell("SEQFUSE_NVTX_LOG=" + folder +
                   "/ranges NVTX_INJECTION64_PATH=" + SEQFUSE_NVTX_RECORDER + " " + test::binary() +
                   " encode " + folder + " --device cpu --ids 5,6,7 --output " + folder + "/v.npy");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(
      read_file(folder + "/ranges"),
      "gemm0 bias0+split\n<\nQK mask softmax PV transpose\n<\ngemm1\n<\nbias1+residual LN1\n<\n"
      "gemm2\n<\nbias2+GELU\n<\ngemm3\n<\nbias3+residual LN2\n<\n");
}
#else
TEST(TraceRanges, AreTheOperatorsOfALayer) {
  GTEST_SKIP() << "this build has no NVTX";
}
#endif

}  // namespace seqfuse::trace_range_test
