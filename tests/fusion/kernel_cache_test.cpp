#include "fusion/compile/kernel_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "fusion/compile/nvrtc.h"
#include "tests/faults/small_disk.h"
#include "tests/temporary_directory.h"

namespace seqfuse::kernel_cache_test {
namespace {

namespace fs = std::filesystem;
using fusion::KernelCache;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kSource = "extern \"C\" __global__ void nothing(int* x) { *x = 1; }\n";

class Cache : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string& why = fusion::Nvrtc::get().absence(); !why.empty()) GTEST_SKIP() << why;
  }
  fs::path only_file(const std::string& ending) const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder())) {
      if (entry.path().string().ends_with(ending)) files.push_back(entry.path());
    }
    EXPECT_EQ(files.size(), 1U) << ending;
    return files.empty() ? fs::path() : files[0];
  }
  fs::path folder() const { return directory_.path() / "made/kernels"; }

  TemporaryDirectory directory_;
  const KernelCache cache_{folder()};
};

TEST_F(Cache, KernelsAreCompiledOnce) {
  const std::string cubin = cache_.cubin(kSource, "nothing", "sm_90");
  EXPECT_TRUE(
      cubin.starts_with("\x7f"
                        "ELF"));
  EXPECT_EQ(read_file(only_file(".cubin")), cubin);
  EXPECT_EQ(read_file(only_file(".cu")), kSource);
  // A cached file is not compiled again: its content is returned, whatever it is.
  write_file_atomically(only_file(".cubin"), "kept");
  EXPECT_EQ(cache_.cubin(kSource, "nothing", "sm_90"), "kept");
  EXPECT_EQ(cache_.compile_again(kSource, "nothing", "sm_90"), cubin);
  EXPECT_EQ(read_file(only_file(".cubin")), cubin);
}

TEST_F(Cache, AnEmptyFileIsNoKernel) {
  const std::string cubin = cache_.cubin(kSource, "nothing", "sm_90");
  std::ofstream(only_file(".cubin"), std::ios::trunc).close();
  EXPECT_EQ(cache_.cubin(kSource, "nothing", "sm_90"), cubin);
}

TEST_F(Cache, SourceThatDoesNotCompileIsKept) {
  const std::string source = "extern \"C\" __global__ void broken(int* x) { *x = y; }\n";
  try {
    cache_.cubin(source, "broken", "sm_90");
    FAIL();
  } catch (const Error& error) {
    const fs::path kept = only_file(".failed.cu");
    EXPECT_THAT(error.what(), AllOf(HasSubstr("does not compile the kernel broken for sm_90"),
                                    HasSubstr("\"y\" is undefined"), HasSubstr(kept.string())));
    EXPECT_EQ(read_file(kept), source);
  }
}

// A folder in whose place there is a file: nothing can be written there, by root either.
TEST_F(Cache, KernelsAreCompiledWithoutAWritableFolder) {
  std::ofstream(directory_.path() / "made") << "a file";
  testing::internal::CaptureStderr();
  const std::string cubin = cache_.cubin(kSource, "nothing", "sm_90");
  EXPECT_TRUE(
      cubin.starts_with("\x7f"
                        "ELF"));
  EXPECT_EQ(cache_.cubin(kSource, "nothing", "sm_90"), cubin);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("kernels are compiled again in each process"));
}

TEST_F(Cache, SeveralMayAskAtOnce) {
  std::vector<std::string> cubins(4);
  std::vector<std::thread> threads;
  for (std::string& cubin : cubins)
    threads.emplace_back([&] { cubin = cache_.cubin(kSource, "nothing", "sm_90"); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& cubin : cubins) EXPECT_EQ(cubin, cubins[0]);
  EXPECT_EQ(read_file(only_file(".cubin")), cubins[0]);
}

// As two searches do that share a cache.
TEST_F(Cache, TwoProcessesMayAskAtOnce) {
  std::vector<pid_t> processes;
  for (int i = 0; i < 2; ++i) {
    processes.push_back(fork());
    if (processes.back() != 0) continue;
    const std::string cubin = cache_.cubin(kSource, "nothing", "sm_90");
    _exit(cubin.starts_with("\x7f"
                            "ELF")
              ? 0
              : 1);
  }
  for (const pid_t process : processes) {
    int status = 0;
    ASSERT_EQ(waitpid(process, &status, 0), process);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(read_file(only_file(".cubin")), cache_.compile_again(kSource, "nothing", "sm_90"));
}

// There is room for the source, but not for the machine code beside it.
TEST_F(Cache, OnAFullDiskKernelsAreCompiledStillAndNoPartIsLeft) {
  const SmallDisk disk(getpagesize());
  if (!disk.why().empty()) GTEST_SKIP() << disk.why();
  const KernelCache full(disk.path());
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(full.cubin(kSource, "nothing", "sm_90")
                    .starts_with("\x7f"
                                 "ELF"));
  }
  for (const auto& entry : fs::directory_iterator(disk.path()))
    EXPECT_EQ(entry.path().extension(), ".cu") << entry.path();
}

TEST(KernelCacheFolder, IsChosenByVariables) {
  const char* before = std::getenv("SEQFUSE_KERNEL_CACHE");
  const std::string kept = before != nullptr ? before : "";
  setenv("SEQFUSE_KERNEL_CACHE", "/somewhere/kernels", 1);
  EXPECT_EQ(KernelCache::default_folder(), "/somewhere/kernels");
  setenv("SEQFUSE_KERNEL_CACHE", "", 1);
  EXPECT_TRUE(KernelCache::default_folder().string().ends_with("kernels"));
  if (before != nullptr) {
    setenv("SEQFUSE_KERNEL_CACHE", kept.c_str(), 1);
  } else {
    unsetenv("SEQFUSE_KERNEL_CACHE");
  }
}

}  // namespace
}  // namespace seqfuse::kernel_cache_test
