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

TEST_F(PreprocessCli, ExtendingKnowsTheTitles) {
  for (const char* folder : {"old", "new", "both"}) {
    fs::create_directories(path(folder));
    write(std::string(folder) + "/products.csv", "item_id,name\na,The A\nb,The B\nc,The C\n");
  }
  for (const char* folder : {"old", "both"}) {
    write(std::string(folder) + "/1.csv", "user_id,item_id,time\nu,a,1\nv,b,2\n");
  }
  for (const char* folder : {"new", "both"}) {
    write(std::string(folder) + "/2.csv", "user_id,item_id,time\nu,c,3\n");
  }
  const std::string titles = " --time-column time --title-file products.csv --title-column name";
  ASSERT_EQ(preprocess("--input " + path("old") + " --output " + path("data") + titles).code, 0);
  ASSERT_EQ(preprocess("--input " + path("both") + " --output " + path("all") + titles).code, 0);
  const Outcome extended = preprocess("--extend " + path("data") + " --input " + path("new") +
                                      " --output " + path("more"));
  ASSERT_EQ(extended.code, 0) << extended.text();
  EXPECT_EQ(read_file(path("more/manifest.json")), read_file(path("all/manifest.json")));
  EXPECT_EQ(data::Dataset::open(path("more"))->item_title(3), "The C");
  // A log alone: known titles stay, new items have none.
  write("3.csv", "user_id,item_id,time\nu,d,4\nu,a,5\n");
  const std::string log = "--extend " + path("data") + " --input " + path("3.csv");
  const Outcome alone = preprocess(log + " --output " + path("alone"));
  ASSERT_EQ(alone.code, 0) << alone.text();
  const auto dataset = data::Dataset::open(path("alone"));
  EXPECT_EQ(dataset->item_title(1), "The A");
  EXPECT_EQ(dataset->item_title(3), "");
  // Where it is named, it must be there; it cannot be another column.
  const Outcome missing = preprocess(log + " --title-file products.csv --output " + path("x"));
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.err, HasSubstr("has no products.csv, the file of titles"));
  const Outcome other = preprocess(log + " --title-column title --output " + path("x"));
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err,
              HasSubstr("--title-column title: " + path("data") + " was made with name"));
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

TEST_F(PreprocessCli, LinesOfItems) {
  write("Beauty.txt", "1 10 11 12\n2 11\n");
  const Outcome result =
      preprocess("--format sasrec --input " + path("Beauty.txt") + " --output " + path("out"));
  ASSERT_EQ(result.code, 0) << result.text();
  EXPECT_THAT(result.text(), AllOf(HasSubstr("csv: 2 users, 3 items, 4 events"),
                                   HasSubstr("rule: The log has no time")));
  EXPECT_THAT(data::Dataset::open(path("out"))->user(0).items, testing::ElementsAre(1, 2, 3));
}

TEST_F(PreprocessCli, AtomicFiles) {
  fs::create_directory(path("in"));
  write("in/ml.inter",
        "user_id:token\titem_id:token\trating:float\ttimestamp:float\n1\ta\t4\t20\n1\tb\t5\t10\n");
  write("in/ml.user", "user_id:token\tage:token\n1\t49\n");
  write("in/ml.item", "item_id:token\tmovie_title:token_seq\na\tToy Story\n");
  const std::string flags = "--format recbole --input " + path("in") +
                            " --title-column movie_title --context-columns user_id,age "
                            "--action-column rating";
  const Outcome result = preprocess(flags + " --output " + path("out"));
  ASSERT_EQ(result.code, 0) << result.text();
  const auto dataset = data::Dataset::open(path("out"));
  EXPECT_THAT(dataset->user(0).timestamps, testing::ElementsAre(10, 20));
  EXPECT_EQ(dataset->item_title(1), "Toy Story");
  EXPECT_EQ(dataset->context_value(1, dataset->context(1, 0)), "49");
  const Outcome by_file = preprocess(flags + " --order file --output " + path("file"));
  ASSERT_EQ(by_file.code, 0) << by_file.text();
  EXPECT_THAT(data::Dataset::open(path("file"))->user(0).items, testing::ElementsAre(1, 2));
  EXPECT_FALSE(data::Dataset::open(path("file"))->manifest().has_timestamps);
}

TEST_F(PreprocessCli, CommentsQuotesAndTimeFormat) {
  write("log.csv", "% shop\nuser_id,item_id,at\n1,\"a,24.12.2024 18:00\n1,b,1.12.2024 9:30\n");
  const Outcome result =
      preprocess("--input " + path("log.csv") + " --output " + path("out") +
                 " --comment % --quote none --time-column at --time-format '%d.%m.%Y %H:%M'");
  ASSERT_EQ(result.code, 0) << result.text();
  const auto dataset = data::Dataset::open(path("out"));
  EXPECT_THAT(dataset->user(0).timestamps, testing::ElementsAre(1733045400, 1735063200));
  EXPECT_EQ(dataset->item_id(dataset->user(0).items[1]), "\"a");
}

TEST_F(PreprocessCli, DryRunShowsAndWritesNothing) {
  write("log.csv", "user_id,item_id,ts\n1,12.0,1709251200000\n2,13,1709251260000\n");
  const Outcome result = preprocess("--dry-run --time-column ts --input " + path("log.csv"));
  ASSERT_EQ(result.code, 0) << result.text();
  EXPECT_THAT(result.text(),
              AllOf(HasSubstr("first events as understood:"), HasSubstr("looks like milliseconds"),
                    HasSubstr("decimals such as '12.0'"), HasSubstr("nothing was written")));
  const Outcome wrong = preprocess("--dry-run --user-column who --input " + path("log.csv"));
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.text(), AllOf(HasSubstr("  ts "), HasSubstr("no column 'who'")));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_.path()), {}), 1);
}

TEST_F(PreprocessCli, ExtendKnowsTheFlags) {
  write("monday.csv", "who,what,when,how,land\na,x,3,view,DE\nb,y,4,buy,\n");
  write("tuesday.csv", "when,who,what,how,land\n5,a,y,buy,FR\n6,c,z,like,IT\n");
  const std::string flags =
      " --user-column who --item-column what --time-column when --action-column how "
      "--context-columns who,land --deduplicate";
  const std::string out = path("out"), both = path("both");
  ASSERT_EQ(preprocess("--input " + path("monday.csv") + flags + " --output " + out).code, 0);
  const Outcome result = preprocess("--extend " + out + "/ --input " + path("tuesday.csv"));
  ASSERT_EQ(result.code, 0) << result.text();
  EXPECT_THAT(result.text(), HasSubstr("1 new users, 1 new items, 2 new events"));
  fs::create_directory(path("in"));
  fs::rename(path("monday.csv"), path("in/monday.csv"));
  fs::rename(path("tuesday.csv"), path("in/tuesday.csv"));
  ASSERT_EQ(preprocess("--input " + path("in") + flags + " --output " + both).code, 0);
  EXPECT_EQ(read_file(out + "/manifest.json"), read_file(both + "/manifest.json"))
      << "which has the hashes of all other files";
  const Outcome again = preprocess("--extend " + out + " --input " + path("in/tuesday.csv"));
  EXPECT_EQ(again.code, 1);
  EXPECT_THAT(again.text(), HasSubstr("is already in"));
  const Outcome other =
      preprocess("--extend " + out + " --input " + path("in") + " --item-column sku");
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.text(), HasSubstr("--item-column sku: " + out + " was made with what"));
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
           {"--order file --time-column t" + io, "file order does without times"},
           {"--order time" + io, "--order time: give --time-column"},
           {"--format sasrec --time-column t" + io, "lines hold a user and items only"},
           {"--format recbole --title-file t.csv" + io, "titles come from the .item file"},
           {"--dataset-name ml-1m --order file" + io, "fixes the files and columns"},
           {"--dataset-name ml-1m --comment %" + io, "fixes the files and columns"},
           {"--time-column t --time-format %H" + io, "expected a year"},
           {"--time-format %F" + io, "--time-format: give --time-column"},
           {"--comment '\"'" + io, "other than quotes and newlines"},
           {"--quote single" + io, "--quote"},
           {"--iterative" + io, "--iterative: give --min-user-events"},
           {"--given-split --deduplicate" + io, "dropped events would change the given parts"},
           {"--extend no-such --input .", "--extend no-such: there is no"},
           {"--input .", "--output is required"},
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
