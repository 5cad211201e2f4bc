// Files that change after they were opened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "data/batch/batch.h"
#include "data/dataset/arrow_files.h"
#include "data/dataset/file_blocks.h"
#include "data/ingest/formats.h"
#include "data/ingest/preprocess.h"
#include "tests/temporary_directory.h"

namespace seqfuse::data::data_file_blocks_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Flips one bit in place, as a failing disk would.
void flip(const fs::path& file, int64_t at) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(at);
  const char byte = static_cast<char>(stream.get() ^ 1);
  stream.seekp(at).put(byte);
}

template <class Work>
std::string error_of(const Work& work) {
  try {
    work();
  } catch (const DataError& error) {
    return error.what();
  }
  return "no DataError";
}

TEST(FileBlocks, NamesTheFileAndTheBytesThatChanged) {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "x";
  write_file_atomically(file, std::string(1'100'000, 'a') + "end");  // more than is read at once
  const FileBlocks blocks(file);
  EXPECT_EQ(blocks.hash(), hash_file(file));
  const int64_t last = 1'100'002 / FileBlocks::kBlock;
  for (int64_t b = 0; b <= last; ++b) blocks.check(b);

  flip(file, 3 * FileBlocks::kBlock);
  blocks.check(2);
  blocks.check(4);
  EXPECT_THAT(error_of([&] { blocks.check(3); }),
              HasSubstr(file.string() + " is damaged: bytes 12288 to 16384 have changed"));
  flip(file, 1'100'002);
  EXPECT_THAT(error_of([&] { blocks.check(last); }), HasSubstr("to 1100003 have changed"));
  fs::resize_file(file, 12'300);
  EXPECT_THAT(error_of([&] { blocks.check(3); }),
              HasSubstr("it had 1100003 bytes and was truncated to 12300"));
  blocks.check(2);
}

TEST(FileBlocks, AFileThatIsNotThereIsAnIoError) {
  EXPECT_THROW(FileBlocks("/no/such/file"), IoError);
}

// A flip of any bit of the columns that a batch reads is detected.
TEST(FileBlocks, BatchesFindEveryChangeOfWhatTheyRead) {
  const TemporaryDirectory directory;
  {
    std::ofstream log(directory.path() / "log.csv");
    log << "user_id,item_id,timestamp,rating\n";
    for (int u = 0; u < 300; ++u) {
      for (int i = 0; i < 10; ++i) log << u << ',' << i << ',' << 10 * i << ',' << i % 2 << '\n';
    }
  }
  DatasetFormat format;
  format.name = "csv";
  format.from_flags = true;
  format.user_column = "user_id";
  format.item_column = "item_id";
  format.time_column = "timestamp";
  format.action_columns = {"rating"};
  format.action_rule = ActionRule::values;
  PreprocessOptions options;
  options.ingest.input = directory.path() / "log.csv";
  options.output = directory.path() / "data";
  preprocess(format, options);
  const auto dataset = Dataset::open(options.output);
  const fs::path file = fs::directory_iterator(options.output / "sequences")->path();
  const std::string content = read_file(file);
  const auto shard = map_arrow_file(file).at(0);  // for the positions of the columns

  std::vector<Sample> samples;
  for (int64_t u = 0; u < 300; ++u) samples.push_back({.user = u, .begin = 3, .end = 9});
  const auto read = [&] { make_batch(*dataset, samples.data(), std::ssize(samples), 0); };
  EXPECT_EQ(error_of(read), "no DataError");
  for (const auto& column : {"items", "actions", "timestamps"}) {
    const auto lists = std::static_pointer_cast<arrow::ListArray>(shard->GetColumnByName(column));
    const auto values = std::static_pointer_cast<arrow::Int64Array>(lists->values());
    const std::string all(reinterpret_cast<const char*>(values->raw_values()), 8 * 3000);
    const auto begin = static_cast<int64_t>(content.find(all));
    for (const int64_t value : {4, 1504, 2998}) {
      flip(file, begin + 8 * value);
      EXPECT_THAT(error_of(read), HasSubstr(file.string() + " is damaged")) << column << value;
      flip(file, begin + 8 * value);
      EXPECT_EQ(error_of(read), "no DataError");
    }
    const std::string offsets(reinterpret_cast<const char*>(lists->raw_value_offsets()), 4 * 301);
    const auto where = static_cast<int64_t>(content.find(offsets));
    flip(file, where + 4 * 150);
    EXPECT_THAT(error_of(read), HasSubstr(file.string() + " is damaged")) << column;
    flip(file, where + 4 * 150);
  }
  fs::resize_file(file, fs::file_size(file) / 2);
  EXPECT_THAT(error_of(read), HasSubstr("was truncated to"));
}

}  // namespace
}  // namespace seqfuse::data::data_file_blocks_test
