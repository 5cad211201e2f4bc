// seqfuse preprocess from the command line: bundled data, flags, exit codes, a full disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/file.h"
#include "data/dataset/dataset.h"
#include "tests/cli/seqfuse_process.h"
#include "tests/paths.h"
#include "tests/temporary_directory.h"

namespace seqfuse::preprocess_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

Outcome preprocess(const std::string& arguments) {
  return run_seqfuse("preprocess " + arguments);
}

class PreprocessCli : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (directory_.path() / name).string(); }
  void write(const std::string& name, std::string_view content) const {
    std::ofstream(path(name), std::ios::binary) << content;
  }
  TemporaryDirectory directory_;
};

TEST_F(PreprocessCli, BundledDataCountsAndSummary) {
  const Outcome result =
      preprocess("--dataset_name ml-latest-small --input " + test::source_directory() +
                 "/data/ml-latest-small --output " + path("out/"));
  ASSERT_EQ(result.code, 0) << result.text();
  EXPECT_THAT(result.text(), AllOf(HasSubstr("610 users, 9724 items, 100836 events"),
                                   HasSubstr("rule: Action: 2 * rating - 1"), HasSubstr("rows/s"),
                                   HasSubstr("written to")));
  const auto dataset = data::Dataset::open(path("out"));
  EXPECT_EQ(dataset->manifest().num_actions, 10);
  EXPECT_EQ(dataset->item_title(*dataset->find_item("1")), "Toy Story (1995)");
}

TEST_F(PreprocessCli, CsvByColumnNames) {
  write("log.tsv",
        "when\twho\twhat\tlike\tshare\n2024-01-02\tu\tx\t1\t0\n2024-01-01\tu\ty\t1\t1\n");
  const Outcome result =
      preprocess("--dataset-name csv --input " + path("log.tsv") + " --output " + path("out") +
                 " --user-column who --item-column what --time-column when "
                 "--action-column like,share --write-processed-seqs " +
                 path("p.csv"));
  ASSERT_EQ(result.code, 0) << result.text();
  EXPECT_EQ(read_file(path("p.csv")),
            "user_id,item_id,action,timestamp\n"
            "u,\"[\"\"y\"\", \"\"x\"\"]\",\"[3, 1]\",\"[1704067200, 1704153600]\"\n");
}

TEST_F(PreprocessCli, SkippedRowsAreShown) {
  write("log.csv", "user_id,item_id\n1,2\nbad\n");
  const std::string arguments =
      "--dataset-name csv --input " + path("log.csv") + " --output " + path("out");
  const Outcome refused = preprocess(arguments);
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.text(), HasSubstr("log.csv:3: expected 2 columns, found 1"));
  EXPECT_FALSE(fs::exists(path("out")));
  const Outcome skipped = preprocess(arguments + " --on-bad-row skip");
  EXPECT_EQ(skipped.code, 0);
  EXPECT_THAT(skipped.text(),
              AllOf(HasSubstr("1 malformed rows of 2 skipped"), HasSubstr("log.csv:3:")));
}

TEST_F(PreprocessCli, TitlesAndEncoding) {
  fs::create_directory(path("in"));
  write("in/log.csv", "user_id;item_id\n1;a\n");
  write("in/names.csv", "item_id,title\na,caf\xE9\n");
  const Outcome result =
      preprocess("--dataset-name csv --input " + path("in") + " --output " + path("out") +
                 " --delimiter ';' --title-file names.csv.gz "
                 "--title-delimiter , --encoding latin1");
  ASSERT_EQ(result.code, 0) << result.text();
  EXPECT_EQ(data::Dataset::open(path("out"))->item_title(1), "caf\xC3\xA9");
}

TEST_F(PreprocessCli, UsageErrors) {
  const std::string io = " --input . --output " + path("out");
  for (const auto& [arguments, message] :
       std::initializer_list<std::pair<std::string, std::string>>{
           {"--dataset-name ml-1n" + io, "did you mean 'ml-1m'?"},
           {"--dataset-name csv --memory-limit 3" + io, "--memory-limit 3"},
           {"--dataset-name csv --on-bad-row maybe" + io, "--on-bad-row"},
           {"--dataset-name csv --delimiter abc" + io, "one or two characters"},
           {"--dataset-name csv --delimiter '\"'" + io, "no quotes or newlines"},
           {"--dataset-name csv --encoding utf-9" + io, "--encoding"},
           {"--dataset-name csv --threads 0" + io,
            "--threads: 0 is not a whole number of 1 or more"},
           {"--dataset-name csv --min-user-events -2" + io, "--min-user-events: -2 is not"},
           {"--dataset-name csv --input '' --output x", "--input: the path '' is blank"},
           {"--dataset-name csv --input . --output .", "--output .: give a folder"},
           {"--dataset-name csv --input . --output ' '", "--output: the path ' ' is blank"},
           {"--dataset-name csv --title-file ''" + io, "--title-file: the path '' is blank"},
           {"--dataset-name csv", "--help"}}) {
    const Outcome result = preprocess(arguments);
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_THAT(result.text(), HasSubstr(message)) << arguments;
  }
}

TEST_F(PreprocessCli, HelpFitsAScreen) {
  const Outcome result = preprocess("--help");
  EXPECT_EQ(result.code, 0);
  const std::string help = result.text();
  EXPECT_LE(std::count(help.begin(), help.end(), '\n'), 50);
}

TEST_F(PreprocessCli, ReadOnlyFolder) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  write("log.csv", "user_id,item_id\n1,2\n");
  fs::create_directory(path("locked"));
  fs::permissions(path("locked"), fs::perms::owner_read | fs::perms::owner_exec);
  const Outcome result = preprocess("--dataset-name csv --input " + path("log.csv") + " --output " +
                                    path("locked/out"));
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.text(), HasSubstr("locked/out"));
}

TEST_F(PreprocessCli, FullDisk) {
  fs::create_directory(path("small"));
  if (mount("tmpfs", path("small").c_str(), "tmpfs", 0, "size=256k") != 0) {
    GTEST_SKIP() << "needs the right to mount a small disk";
  }
  const Outcome result =
      preprocess("--dataset-name ml-latest-small --input " + test::source_directory() +
                 "/data/ml-latest-small --output " + path("small/out"));
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.text(), AllOf(HasSubstr("small/out"), HasSubstr("No space left on device")));
  EXPECT_TRUE(fs::is_empty(path("small"))) << "nothing is left behind";
  umount(path("small").c_str());
}

}  // namespace
}  // namespace seqfuse::preprocess_test
