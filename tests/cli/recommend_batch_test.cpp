// seqfuse recommend --users: the rows of single calls in three formats, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "data/read/csv.h"
#include "data/read/parquet_rows.h"
#include "report/run_files.h"
#include "tests/cli/trained_runs.h"

namespace seqfuse::recommend_batch_test {
namespace {
namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

using Row = std::vector<std::string>;  // user, rank, item, score, title

std::vector<Row> csv_rows(const std::string& file) {
  const std::string text = read_file(file);
  data::RowSplitter splitter(text, {});
  std::vector<Row> rows;
  while (splitter.next()) rows.emplace_back(splitter.fields().begin(), splitter.fields().end());
  return rows;
}

std::vector<Row> parquet_rows(const std::string& file) {
  data::ParquetRows parquet(read_file(file), file);
  std::vector<int> all;
  for (int c = 0; c < static_cast<int>(parquet.names().size()); ++c) all.push_back(c);
  parquet.select(all);
  std::vector<Row> rows = {Row(parquet.names())};
  while (parquet.next_batch()) {
    while (parquet.next()) rows.emplace_back(parquet.fields().begin(), parquet.fields().end());
  }
  return rows;
}

std::vector<json> json_lines(const std::string& file) {
  std::istringstream in(read_file(file));
  std::vector<json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

class RecommendBatch : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (directory_.path() / name).string(); }

  std::string file(const std::string& name, const std::string& content) const {
    std::ofstream(path(name)) << content;
    return path(name);
  }

  Outcome run(const std::string& run, const std::string& arguments,
              const std::string& output = "out.csv") const {
    return run_seqfuse("recommend " + run + " " + arguments + " --output " + path(output));
  }

  // The rows of a run that must succeed, without the header.
  std::vector<Row> rows(const std::string& run_directory, const std::string& arguments) const {
    const Outcome outcome = run(run_directory, arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.text();
    if (outcome.code != 0) return {};
    std::vector<Row> rows = csv_rows(path("out.csv"));
    rows.erase(rows.begin());
    return rows;
  }

  // That no file but these is there: no output, no temporary one.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_.path())) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  TemporaryDirectory directory_;
};

// The rows of a user are those of the single call.
void expect_single(const std::vector<Row>& rows, const std::string& user, const std::string& run,
                   const std::string& request, const std::string& score = "score") {
  const Outcome outcome = run_seqfuse("recommend --json " + run + " " + request);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json items = json::parse(outcome.out)["items"];
  std::vector<Row> own;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(own),
               [&](const Row& row) { return row[0] == user; });
  ASSERT_EQ(own.size(), items.size()) << user;
  for (size_t i = 0; i < own.size(); ++i) {
    EXPECT_EQ(own[i][1], std::to_string(i + 1));
    EXPECT_EQ(own[i][2], items[i]["item"].get<std::string>());
    EXPECT_NEAR(std::stod(own[i][3]), items[i][score].get<double>(), 1e-5);
  }
}

TEST_F(RecommendBatch, AllUsersGetWhatSingleCallsGive) {
  for (const std::string& run : {TrainedRuns::get().retrieval(), TrainedRuns::get().research()}) {
    const auto all = rows(run, "--users all --top-k 4");
    EXPECT_EQ(all.size(), 40U * 4);
    for (const std::string user : {"u0", "u7", "u39"}) {
      expect_single(all, user, run, "--top-k 4 --user " + user);
    }
    EXPECT_EQ(rows(run, "--users all --top-k 4 --batch-size 3").size(), all.size());
    const auto seen = rows(run, "--users all --top-k 20 --include-seen");
    EXPECT_EQ(seen.size(), 40U * 15);
    expect_single(seen, "u5", run, "--top-k 20 --include-seen --user u5");
  }
}

TEST_F(RecommendBatch, FormatsHoldTheSame) {
  const std::string run_directory = TrainedRuns::get().retrieval();
  const auto expected = rows(run_directory, "--users all --top-k 3");
  for (const std::string output : {"out.jsonl", "out.parquet"}) {
    const Outcome outcome = run(run_directory, "--users all --top-k 3", output);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("40 users, 120 rows in"));
  }
  EXPECT_THAT(csv_rows(path("out.csv"))[0], ElementsAre("user", "rank", "item", "score", "title"));
  const auto parquet = parquet_rows(path("out.parquet"));
  EXPECT_THAT(parquet[0], ElementsAre("user", "rank", "item", "score", "title"));
  const auto lines = json_lines(path("out.jsonl"));
  ASSERT_EQ(lines.size(), expected.size());
  ASSERT_EQ(parquet.size(), expected.size() + 1);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(lines[i]["user"], expected[i][0]);
    EXPECT_EQ(lines[i]["rank"], std::stoi(expected[i][1]));
    EXPECT_EQ(lines[i]["item"], expected[i][2]);
    EXPECT_NEAR(lines[i]["score"].get<double>(), std::stod(expected[i][3]), 1e-5);
    for (const size_t column : {0, 1, 2, 4}) EXPECT_EQ(parquet[i + 1][column], expected[i][column]);
    EXPECT_NEAR(std::stod(parquet[i + 1][3]), std::stod(expected[i][3]), 1e-5);
  }
}

TEST_F(RecommendBatch, UsersOfAFileInTheirOrderAndEachOnce) {
  const std::string run_directory = TrainedRuns::get().retrieval();
  const Outcome outcome =
      run(run_directory, "--top-k 1 --users " + file("users.txt", "u3\nu1\nu3\nu30\nu1\n"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("2 users came again and were left out; the first: 'u3', "),
                    HasSubstr("users.txt:3"), HasSubstr("3 users, 3 rows")));
  const auto found = csv_rows(path("out.csv"));
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[1][0] + found[2][0] + found[3][0], "u3u1u30");
}

const std::string kEvents =
    "user,item,timestamp,action\n"
    "\"a \"\"b\"\", c\",item0,1000,0\n\"a \"\"b\"\", c\",item1,1060,1\nx,item5,1000,4\n";

TEST_F(RecommendBatch, HistoriesNeedNoDataSet) {
  const fs::path run_directory = directory_.path() / "run";
  fs::copy(TrainedRuns::get().research(), run_directory, fs::copy_options::recursive);
  report::RunInfo info = report::read_run_info(run_directory);
  info.dataset_path = "/nowhere";
  report::write_run_info(run_directory, info);
  const auto found =
      rows(run_directory.string(), "--top-k 3 --users " + file("events.csv", kEvents));
  ASSERT_EQ(found.size(), 6U);
  expect_single(found, "a \"b\", c", run_directory.string(),
                "--top-k 3 --history item0,item1 --timestamps 1000,1060");
  expect_single(found, "x", run_directory.string(), "--top-k 3 --history item5 --timestamps 1000");
  const Outcome users = run(run_directory.string(), "--users " + file("users.txt", "u1\n"));
  EXPECT_EQ(users.code, 1);
  EXPECT_THAT(users.err, AllOf(HasSubstr("/nowhere"), HasSubstr("--data DIR"),
                               HasSubstr("a file of histories does without")));
}

TEST_F(RecommendBatch, TimesInAFormatAndFieldsBySemicolons) {
  // Of a data set whose times are seconds.
  const std::string log = file("log.csv",
                               "user_id,item_id,time\na,item0,1970-01-01 00:16:40\n"
                               "b,item1,1970-01-01 00:16:40\na,item2,1970-01-02 00:00:00\n"
                               "b,item3,1970-01-03 00:00:00\na,item1,1970-01-05 00:00:00\n"
                               "b,item0,1970-01-06 00:00:00\na,item3,1970-01-07 00:00:00\n");
  const std::string data = path("data"), run_directory = path("run");
  ASSERT_EQ(run_seqfuse("preprocess --input " + log + " --time-column time --output " + data).code,
            0);
  const Outcome trained =
      run_seqfuse("train retrieval --gin-config-file " + TrainedRuns::get().research() +
                  "/operative_config.gin " +
                  "--gin TrainerArgs.max_train_iters=1 --gin TrainerArgs.eval_interval=1 --data " +
                  data + " --output " + run_directory);
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::string format = " --time-format '%d.%m.%Y %H:%M' ";
  const std::string times = "--top-k 2 --history item0,item1 --timestamps ";
  const auto as_numbers =
      rows(run_directory, "--top-k 2 --users " + file("n.csv",
                                                      "user,items,timestamps\n"
                                                      "x,\"item0,item1\",\"960,86400\"\n"));
  const auto in_format =
      rows(run_directory, "--top-k 2 --delimiter ';' --users " +
                              file("f.csv",
                                   "user;items;timestamps\n"
                                   "x;item0,item1;01.01.1970 00:16,02.01.1970 00:00\n") +
                              format);
  ASSERT_EQ(in_format.size(), 2U);
  EXPECT_EQ(in_format, as_numbers);
  expect_single(in_format, "x", run_directory, times + "960,86400");
  expect_single(in_format, "x", run_directory,
                times + "'01.01.1970 00:16,02.01.1970 00:00'" + format);
  const Outcome wrong = run(run_directory, "--users " + path("n.csv") + format);
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.err,
              HasSubstr("n.csv:2: '960' is not a time in --time-format '%d.%m.%Y %H:%M', "
                        "such as '31.12.2024 18:05'"));
  // The times of the other runs' data set have no unit.
  const Outcome plain = run_seqfuse("recommend " + TrainedRuns::get().research() + " " + times +
                                    "'01.01.1970 00:16,02.01.1970 00:00'" + format);
  EXPECT_EQ(plain.code, 2);
  EXPECT_THAT(plain.err, HasSubstr("are plain numbers"));
}

TEST_F(RecommendBatch, ReadsStandardInput) {
  const std::string lines = file("in", "{\"user\": 1, \"items\": [\"item1\", \"item2\"]}\n");
  const std::string run_directory = TrainedRuns::get().retrieval();
  const Outcome outcome =
      run_seqfuse("recommend " + run_directory + " --users - --format jsonl --top-k 2 --output " +
                  path("out.csv") + " < " + lines);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("the history has none (--actions)"));
  expect_single(csv_rows(path("out.csv")), "1", run_directory, "--top-k 2 --history item1,item2");
  const Outcome unnamed = run(run_directory, "--users - < " + lines);
  EXPECT_EQ(unnamed.code, 2);
  EXPECT_THAT(unnamed.err, HasSubstr("give --format"));
}

TEST_F(RecommendBatch, BlockAndCandidateLists) {
  const std::string run_directory = TrainedRuns::get().retrieval();
  const std::string exclude = file("block.txt", "item8\nitem9\nitem99\n"),
                    only = file("only.csv", "item\nitem8\nitem10\nitem11\n");
  const auto without = rows(run_directory, "--users all --top-k 20 --exclude " + exclude);
  EXPECT_THAT(run(run_directory, "--users all --exclude " + exclude).err,
              HasSubstr("1 ids, such as 'item99', are not among the 15 items"));
  const auto among = rows(run_directory, "--users all --top-k 20 --include-seen --only " + only);
  EXPECT_EQ(among.size(), 40U * 3);
  const auto both = rows(run_directory, "--users all --top-k 20 --include-seen --only " + only +
                                            " --exclude " + exclude);
  EXPECT_EQ(both.size(), 40U * 2);
  const auto all = rows(run_directory, "--users all --top-k 20");
  EXPECT_LT(without.size(), all.size());
  // The scores of those that stay are as they were.
  std::map<std::pair<std::string, std::string>, double> scores;
  for (const Row& row : all) scores[{row[0], row[2]}] = std::stod(row[3]);
  for (const Row& row : without) {
    EXPECT_NE(row[2], "item8");
    EXPECT_NE(row[2], "item9");
    EXPECT_NEAR((scores.at({row[0], row[2]})), std::stod(row[3]), 1e-6);
  }
}

TEST_F(RecommendBatch, RankingRunsOrderTheCandidatesOfEachUser) {
  const std::string run_directory = TrainedRuns::get().ranking();
  const std::string users = file("users.csv",
                                 "user,candidates\nu0,\"item9,item1,item5\"\nu1,\nu2,item3\n"
                                 "stranger,item3\n");
  const Outcome outcome = run(run_directory, "--cold-users popularity --users " + users);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("1 users get no item"),
                    HasSubstr("1 users of whom the model knows nothing, such as 'stranger'")));
  const auto found = csv_rows(path("out.csv"));
  EXPECT_THAT(found[0], ElementsAre("user", "rank", "item", "expected class", "title"));
  ASSERT_EQ(found.size(), 6U);
  EXPECT_THAT(found[5], ElementsAre("stranger", "1", "item3", "", ""));
  expect_single(found, "u0", run_directory, "--user u0 --candidates item9,item1,item5",
                "expected class");
  expect_single(found, "u2", run_directory, "--user u2 --candidates item3", "expected class");
  // The same for all, by either flag; the first event of u0 is item0.
  const auto given = rows(run_directory, "--users all --candidates item0,item9");
  const auto listed =
      rows(run_directory, "--users all --only " + file("only.txt", "item0\nitem9\n"));
  EXPECT_EQ(given.size(), 80U);
  EXPECT_EQ(listed.size(), 80U);
  expect_single(given, "u0", run_directory, "--user u0 --candidates item0,item9", "expected class");
  const auto unseen = rows(run_directory, "--users all --exclude-seen --candidates item0,item9");
  ASSERT_FALSE(unseen.empty());
  EXPECT_THAT(unseen[0], AllOf(Not(IsEmpty()), testing::Contains("u0"), testing::Contains("item9"),
                               testing::Contains("1")));
}

TEST_F(RecommendBatch, ColdUsersAreCounted) {
  const std::string run_directory = TrainedRuns::get().retrieval();
  const std::string users = file("users.txt", "u1\nnew1\nnew2\nu2\n");
  const Outcome refused = run(run_directory, "--users " + users);
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("users.txt:2: user 'new1' is not among the 40 users"),
                                 HasSubstr("--cold-users skip")));
  EXPECT_THAT(names(), ElementsAre("users.txt"));
  const Outcome skipped = run(run_directory, "--top-k 2 --cold-users skip --users " + users);
  ASSERT_EQ(skipped.code, 0) << skipped.err;
  EXPECT_THAT(
      skipped.err,
      AllOf(HasSubstr("2 users of whom the model knows nothing, such as 'new1', are left out"),
            HasSubstr("out.csv: 2 of 4 users, 4 rows in")));
  const Outcome popular =
      run(run_directory, "--top-k 2 --cold-users popularity --users " + users, "out.jsonl");
  ASSERT_EQ(popular.code, 0) << popular.err;
  EXPECT_THAT(popular.err, HasSubstr("out.jsonl: 4 users, 8 rows in"));
  const auto lines = json_lines(path("out.jsonl"));
  ASSERT_EQ(lines.size(), 8U);
  EXPECT_TRUE(lines[0].contains("score"));
  EXPECT_EQ(lines[2]["user"], "new1");
  EXPECT_FALSE(lines[2].contains("score"));
  EXPECT_EQ(lines[2]["item"], lines[4]["item"]);
}

TEST_F(RecommendBatch, MoreThanThereIs) {
  const Outcome outcome =
      run(TrainedRuns::get().retrieval(), "--users all --top-k 9223372036854775807");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("but there are 15 items: users get fewer"));
  EXPECT_EQ(csv_rows(path("out.csv")).size(), 1U + 40 * 7);
}

TEST_F(RecommendBatch, WrongCallsAreRefusedAndLeaveNothing) {
  const std::string retrieval = TrainedRuns::get().retrieval(),
                    ranking = TrainedRuns::get().ranking();
  file("users.txt", "u1\n");
  file("empty.txt", "\n");
  file("unknown.txt", "item77\n");
  file("all.txt",
       "item0\nitem1\nitem2\nitem3\nitem4\nitem5\nitem6\nitem7\nitem8\nitem9\nitem10\n"
       "item11\nitem12\nitem13\nitem14\n");
  file("split.csv", "user,item\nu,item1\nv,item1\nu,item2\n");
  file("wrong.csv", "user,items\nu,item1\nv,nothing\n");
  file("broken.jsonl", "{\"user\": \"u1\"}\n{\"user\": \"u2\"\n");
  file("bars.csv", "user|item\nu|item1\n");
  const auto before = names();
  const std::string at = path("");
  for (const auto& [arguments, message] : std::vector<std::pair<std::string, std::string>>{
           {retrieval + " --users all", "--users needs --output"},
           {retrieval + " --user u1 --output " + at + "o.csv", "--output is for many users"},
           {retrieval + " --user u1 --resume", "--resume is for many users"},
           {retrieval + " --users all --output " + at, "is a folder: name a file"},
           {retrieval + " --users all --output " + at + "o.xlsx", "end its name in .csv"},
           {retrieval + " --users all --output " + at + "o", "end its name in .csv"},
           {retrieval + " --users all --user u1 --output " + at + "o.csv", "Exactly 1 option from"},
           {retrieval + " --users all --json --output " + at + "o.csv", "--json is for a single"},
           {retrieval + " --users all --actions 1 --output " + at + "o.csv", "for a single"},
           {retrieval + " --users all --include-seen --exclude-seen --output " + at + "o.csv",
            "contradict each other"},
           {retrieval + " --users all --cold-users guess --output " + at + "o.csv", "--cold-users"},
           {retrieval + " --users all --batch-size 0 --output " + at + "o.csv", "--batch-size"},
           {retrieval + " --users all --top-k 0 --output " + at + "o.csv", "--top-k"},
           {retrieval + " --users all --candidates item1 --output " + at + "o.csv",
            "leave out --candidates"},
           {ranking + " --users all --output " + at + "o.csv", "a column 'candidates'"},
           {retrieval + " --users all --time-format %H --output " + at + "o.csv",
            "expected a year"},
           {retrieval + " --users all --time-format %Q --output " + at + "o.csv",
            "expected %Y %y %m %d %e %H %I %M %S %f %b %B %h %a"},
           {retrieval + " --users " + at + "users.txt --delimiter ';' --output " + at + "o.csv",
            "--delimiter is for CSV files"}}) {
    const Outcome outcome = run_seqfuse("recommend " + arguments);
    EXPECT_EQ(outcome.code, 2) << arguments << "\n" << outcome.text();
    EXPECT_THAT(outcome.err, HasSubstr(message)) << arguments;
    EXPECT_EQ(names(), before) << arguments;
  }
  for (const auto& [arguments, message] : std::vector<std::pair<std::string, std::string>>{
           {"--users " + at + "none.csv", "none.csv does not exist"},
           {"--users " + at + "empty.txt", "names no users"},
           {"--users " + at + "split.csv", "split.csv:4: user 'u' comes again"},
           {"--users " + at + "wrong.csv", "wrong.csv:3: item 'nothing' is not among"},
           {"--users " + at + "broken.jsonl",
            "broken.jsonl:2: the request is not valid JSON (at byte"},
           {"--users " + at + "bars.csv", "seems to be separated by bars, '|': give --delimiter"},
           {"--users all --only " + at + "empty.txt", "names none of the 15 items"},
           {"--users all --only " + at + "unknown.txt", "names none of the 15 items"},
           {"--users all --exclude " + at + "all.txt", "leaves no item"},
           {"--users all --exclude " + at + "none.txt", "none.txt does not exist"}}) {
    const Outcome outcome = run(retrieval, arguments);
    EXPECT_EQ(outcome.code, 1) << arguments << "\n" << outcome.text();
    EXPECT_THAT(outcome.err, HasSubstr(message)) << arguments;
    EXPECT_EQ(names(), before) << arguments;
  }
  const Outcome nowhere =
      run_seqfuse("recommend " + retrieval + " --users all --output " + at + "none/o.csv");
  EXPECT_EQ(nowhere.code, 1) << nowhere.text();
  EXPECT_THAT(nowhere.err, HasSubstr("there is no folder"));
}

}  // namespace
}  // namespace seqfuse::recommend_batch_test
