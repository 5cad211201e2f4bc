// Compares TensorBoard event files with bytes from Python's tensorboard 2.21 and with published
// crc32c check values.
#include "report/tensorboard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "tests/temporary_directory.h"

namespace seqfuse::report::report_tensorboard_test {
namespace {
namespace fs = std::filesystem;

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

TEST(TensorBoard, Crc32cCheckValues) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(TensorBoard, RecordsHaveTheBytesOfTensorboardsOwnWriter) {
  EXPECT_EQ(hex(tf_record(version_event(1700000000.5))),
            "1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e743a322b353110");
  EXPECT_EQ(hex(tf_record(scalars_event(1700000001.25, 300,
                                        {{"train/loss", 0.5}, {"evaluation/HR@10", 0.1}}))),
            "3a000000000000001295eae20900005040fc54d94110ac022a2c0a110a0a747261696e2f6c6f7373"
            "150000003f0a170a106576616c756174696f6e2f485240313015cdcccc3de13c075f");
  EXPECT_EQ(hex(tf_record(restart_event(1700000002, 7))),
            "0f000000000000006d532b090900008040fc54d94110073a020801d1e17c88");
}

TEST(TensorBoard, EachStartHasAFileOfItsOwn) {
  const TemporaryDirectory directory;
  const fs::path folder = directory.path() / "run" / "tensorboard";
  EventFile first(folder);
  EventFile second(folder);
  second.restart_at(11);
  second.add(11, {{"train/loss", 2.0}});
  std::vector<uintmax_t> sizes;
  for (const auto& entry : fs::directory_iterator(folder)) {
    EXPECT_TRUE(entry.path().filename().string().starts_with("events.out.tfevents."));
    sizes.push_back(fs::file_size(entry.path()));  // flushed while the files are open
  }
  std::sort(sizes.begin(), sizes.end());
  // A record is 16 bytes and its event.
  const uintmax_t version = 16 + version_event(0).size();
  const uintmax_t rest =
      16 + restart_event(0, 11).size() + 16 + scalars_event(0, 11, {{"train/loss", 2.0}}).size();
  EXPECT_EQ(sizes, (std::vector<uintmax_t>{version, version + rest}));
}

TEST(TensorBoard, NamesTheFolderItCannotMake) {
  const TemporaryDirectory directory;
  write_file_atomically(directory.path() / "file", "");
  EXPECT_THROW(EventFile(directory.path() / "file" / "tensorboard"), IoError);
}

}  // namespace
}  // namespace seqfuse::report::report_tensorboard_test
