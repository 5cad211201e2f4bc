// The disk fills up while vectors are exported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/file.h"
#include "tests/faults/small_disk.h"
#include "tests/faults/small_run.h"

namespace seqfuse::export_disk_full_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TEST(ExportDiskFull, FilesStayAsTheyWere) {
  const SmallDisk disk(1 << 20);
  if (!disk.why().empty()) GTEST_SKIP() << disk.why();
  const TemporaryDirectory directory;
  const std::string run = (directory.path() / "run").string();
  ASSERT_EQ(Background(train_command(run, "--gin TrainerArgs.max_train_iters=2")).wait().code, 0);
  for (const std::string name : {"x.npy", "x.npy.json", "x.parquet"}) {
    write_file_atomically(disk.path() + "/" + name, "as it was");
  }
  // In pages of 4 KiB: none is free, or one for the vectors and none for their ids.
  for (const int64_t free_bytes : {0, 4096}) {
    const std::string ballast = disk.path() + "/ballast";
    fs::remove(ballast);
    const auto free = static_cast<int64_t>(fs::space(disk.path()).available);
    std::ofstream(ballast) << std::string(static_cast<size_t>(free - free_bytes), 'x');
    for (const std::string name : {"x.npy", "x.parquet"}) {
      if (free_bytes > 0 && name == "x.parquet") continue;  // it fits
      const Outcome full =
          run_seqfuse("export " + run + " --items --output " + disk.path() + "/" + name);
      EXPECT_EQ(full.code, 1) << name;
      EXPECT_THAT(full.err, HasSubstr("No space left on device")) << name;
    }
    EXPECT_EQ(names_in(disk.path()),
              (std::vector<std::string>{"ballast", "x.npy", "x.npy.json", "x.parquet"}));
    for (const std::string name : {"x.npy", "x.npy.json", "x.parquet"}) {
      EXPECT_EQ(read_file(disk.path() + "/" + name), "as it was") << name;
    }
  }
}

}  // namespace
}  // namespace seqfuse::export_disk_full_test
