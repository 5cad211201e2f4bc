// Adding events to a data set gives the bytes of preprocessing all logs together, or is refused.
#include "base/file.h"
#include "base/parallel.h"
#include "base/random.h"
#include "data/ingest/extension.h"
#include "tests/unit/dataset_files.h"
#include "tests/unit/preprocess_run.h"

namespace seqfuse::data::data_extend_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ExtendTest : public PreprocessTest {
 protected:
  ExtendTest() { options_.force = true; }

  // Preprocesses both logs together to "both", the first alone to "first", and extends "first" by
  // the second to "extended". name: of the files, with their ending.
  void run_all(const std::string& old_log, const std::string& new_log,
               const std::string& ending = ".csv") {
    write("both_in/a" + ending, old_log);
    write("both_in/b" + ending, new_log);
    write("a" + ending, old_log);
    write("b" + ending, new_log);
    process("both_in", "both");
    process("a" + ending, "first");
    extend("first", "b" + ending, "extended");
  }
  void process(const std::string& input, const std::string& output) {
    options_.extend.clear();
    options_.ingest.input = path(input);
    options_.output = path(output);
    result_ = preprocess(csv_, options_);
  }
  void extend(const std::string& dataset, const std::string& input, const std::string& output) {
    options_.extend = path(dataset);
    options_.ingest.input = path(input);
    options_.output = path(output);
    result_ = preprocess(csv_, options_);
  }
  std::string extend_error(const std::string& dataset, const std::string& input) {
    options_.extend = path(dataset);
    options_.ingest.input = path(input);
    options_.output = path("refused");
    return refused(csv_);
  }
  void expect_same(const std::string& a = "both", const std::string& b = "extended") {
    const auto files_a = dataset_files(path(a)), files_b = dataset_files(path(b));
    ASSERT_EQ(files_a.size(), files_b.size());
    EXPECT_EQ(files_a.at("manifest.json"), files_b.at("manifest.json"));
    EXPECT_TRUE(files_a == files_b);
  }
};

TEST_F(ExtendTest, NewUsersNewItemsAndLateEvents) {
  run_all("user,item,time\n5,x,10\n5,y,30\nbob,x,5\n",
          "user,item,time\n7,a,1\n5,x,20\n5,9,30\n5,z,31\nbob,x,5\n");
  expect_same();
  const auto dataset = Dataset::open(path("extended"));
  EXPECT_THAT(items(*dataset, 0), ElementsAre("x", "x", "y", "9", "z"));
  EXPECT_EQ(result_.rows, 5) << "of the new log";
}

std::string random_log(Random& random, int rows, int users, int items, const char* words) {
  std::string log = "user,item,time,kind,city\n";
  for (int i = 0; i < rows; ++i) {
    const auto user = random.below(users), kind = random.below(3);
    log += fmt::format("{}{},{}{},{},{},{}\n", user % 3 == 0 ? "u" : "", user,
                       random.below(2) == 0 ? "" : "i", random.below(random.below(items) + 1),
                       random.below(40), words[kind],
                       random.below(9) == 0 ? "" : fmt::format("c{}", user % 5));
  }
  return log;
}

TEST_F(ExtendTest, RandomLogsOfAllKinds) {
  Random random(21);
  const int threads_before = num_threads();
  for (int round = 0; round < 24; ++round) {
    set_num_threads(1 + round % 3);
    csv_.time_column = round % 4 == 0 ? "" : "time";
    csv_.user_id_feature = round % 3 == 0;
    csv_.context.clear();
    if (round % 2 == 0) csv_.context = {{"city", "city"}};
    csv_.action_columns.clear();
    csv_.action_rule = ActionRule::none;
    if (round % 5 > 0) {
      csv_.action_columns = {"kind"};
      csv_.action_rule = round % 5 < 4 ? ActionRule::values : ActionRule::bits;
    }
    const bool bits = csv_.action_rule == ActionRule::bits;
    options_.deduplicate = round % 2 == 1;
    options_.ingest.blank_time = round % 7 == 3 ? BlankTime::between : BlankTime::error;
    run_all(
        random_log(random, 300, 30, 40, bits ? "010" : "bcb"),
        random_log(random, 1 + static_cast<int>(random.below(200)), 50, 90, bits ? "101" : "adc"));
    expect_same();
  }
  set_num_threads(threads_before);
}

TEST_F(ExtendTest, SeveralShardsAndDays) {
  Random random(4);
  csv_.context = {{"city", "city"}};
  csv_.action_columns = {"kind"};
  csv_.action_rule = ActionRule::values;
  std::vector<std::string> logs;
  for (int day = 0; day < 3; ++day) {
    logs.push_back(random_log(random, day == 0 ? 1'500'000 : 30'000, 20'000, 5'000, "abc"));
    write(fmt::format("all/{}.csv", day), logs.back());
    write(fmt::format("{}.csv", day), logs.back());
  }
  options_.memory_limit = 1 << 20;  // events go to the disk
  process("all", "both");
  EXPECT_GT(result_.manifest.shards.size(), 1U);
  process("0.csv", "first");
  extend("first", "1.csv", "second");
  extend("second", "2.csv", "second");  // in place
  expect_same("both", "second");
}

TEST_F(ExtendTest, ItemLinesAndJson) {
  options_.ingest.kind = InputKind::item_lines;
  const DatasetFormat csv = csv_;
  csv_.time_column = "";
  csv_.table.columns = {"user", "item"};
  csv_.table.dialect = {" ", false};
  run_all("1 5 3\n2 3\n", "2 4\n1 5\n", ".txt");
  expect_same();
  EXPECT_THAT(items(*Dataset::open(path("extended")), 1), ElementsAre("3", "4"));
  options_.ingest.kind = InputKind::log;
  csv_ = csv;
  fs::remove_all(path("both_in"));
  run_all("{\"user\":1,\"item\":\"x\",\"time\":4}\n", "{\"user\":0,\"item\":\"w\",\"time\":2}\n",
          ".jsonl");
  expect_same();
}

TEST_F(ExtendTest, TitlesAndUserTables) {
  csv_.titles = TitleTable{{"titles.csv", "", ""}, TableFormat(), "item", "title"};
  csv_.users = UserTable{{"users.csv", "", ""}, TableFormat(), "user"};
  csv_.context = {{"age", "age"}};
  const std::string titles = "item,title\nx,The X\ny,The Y\n";
  const std::string users = "user,age\n1,30\n2,20\n3,9\n";
  for (const char* folder : {"all", "old", "new"}) {
    write(std::string(folder) + "/titles.csv", titles);
    write(std::string(folder) + "/users.csv", users);
  }
  for (const char* folder : {"all", "old"}) {
    write(std::string(folder) + "/a.csv", "user,item,time\n1,x,1\n2,z,2\n");
  }
  for (const char* folder : {"all", "new"}) {
    write(std::string(folder) + "/b.csv", "user,item,time\n1,y,1\n3,x,2\n");
  }
  process("all", "both");
  process("old", "first");
  extend("first", "new", "extended");
  expect_same();
  // Without the tables: titles and features of the old rows stay.
  csv_.titles.reset();
  write("b.csv", "user,item,time\n1,y,1\n2,x,2\n");
  extend("first", "b.csv", "extended");
  const auto dataset = Dataset::open(path("extended"));
  EXPECT_EQ(dataset->item_title(*dataset->find_item("x")), "The X");
  EXPECT_EQ(dataset->item_title(*dataset->find_item("y")), "") << "unknown";
  EXPECT_EQ(dataset->context_value(0, dataset->context(0, 0)), "30");
}

TEST_F(ExtendTest, SkippedRowsAreCountedTogether) {
  options_.ingest.on_bad_row = BadRows::skip;
  run_all("user,item,time\n1,a,1\nbad\n", "user,item,time\n1,b,2\n,,\nbad\n");
  expect_same();
  EXPECT_EQ(result_.bad_rows, 2);
  EXPECT_THAT(result_.manifest.rules,
              testing::Contains(HasSubstr("3 malformed rows of 5 were skipped")));
}

TEST_F(ExtendTest, TheSameLogTwiceIsRefused) {
  write("a.csv", "user,item,time\n1,a,1\n");
  process("a.csv", "first");
  fs::copy(path("a.csv"), path("monday.csv"));
  EXPECT_THAT(extend_error("first", "monday.csv"),
              AllOf(HasSubstr("monday.csv is already in"), HasSubstr("its source a.csv")));
}

TEST_F(ExtendTest, UnitsOfTimesMustAgree) {
  write("a.csv", "user,item,time\n1,a,2024-01-01\n");
  write("b.csv", "user,item,time\n1,b,1704067200\n");
  process("a.csv", "dates");
  process("b.csv", "numbers");
  EXPECT_THAT(extend_error("dates", "b.csv"),
              AllOf(HasSubstr("timestamps in " + path("dates").string()),
                    HasSubstr("numbers without a unit in")));
  EXPECT_THAT(extend_error("numbers", "a.csv"), HasSubstr("use one form for all"));
  write("c.csv", "user,item,time\n1,c,2023-12-31\n");
  extend("dates", "c.csv", "extended");
  EXPECT_THAT(items(*Dataset::open(path("extended")), 0), ElementsAre("c", "a"));
}

TEST_F(ExtendTest, RefusesDataSetsThatDoNotKeepEnough) {
  write("new.csv", "user,item,time,kind\n1,n,9,1\n");
  const std::string head = "user,item,time,kind\n";
  const auto refused_after = [&](const std::string& rows) {
    write("old.csv", head + rows);
    process("old.csv", "old");
    return extend_error("old", "new.csv");
  };
  EXPECT_THAT(refused_after("1,a,1.5,1\n"),
              AllOf(HasSubstr("old cannot be extended: its times have fractions"),
                    HasSubstr("preprocess the old and the new log together")));
  options_.ingest.blank_time = BlankTime::between;
  EXPECT_THAT(refused_after("1,a,1,1\n1,b,,1\n"), HasSubstr("--blank-time between placed events"));
  options_.ingest.blank_time = BlankTime::error;
  options_.min_user_events = 2;
  EXPECT_THAT(refused_after("1,a,1,1\n1,b,2,1\n"), HasSubstr("--extend with --min-user-events"));
  options_.extend.clear();
  process("old.csv", "old");
  options_.min_user_events = 1;
  EXPECT_THAT(extend_error("old", "new.csv"), HasSubstr("left out users and items"));
  csv_.action_columns = {"kind"};
  csv_.action_rule = ActionRule::values;
  options_.ingest.on_bad_row = BadRows::skip;
  EXPECT_THAT(refused_after("1,a,1,1\n1,a,2,3\n1,a,2,NA\n"), HasSubstr("rows were skipped"));
}

TEST_F(ExtendTest, OnlyDataSetsOfPreprocess) {
  write("b.csv", "user,item,time\n1,b,2\n");
  fs::create_directory(path("empty"));
  EXPECT_THAT(extend_error("empty", "b.csv"), HasSubstr("there is no"));
  EXPECT_THAT(extend_error("missing", "b.csv"), HasSubstr("missing"));
  write("a.csv", "user,item,time\n1,a,1\n");
  process("a.csv", "first");
  ManifestFile manifest = extendable_manifest(path("first"));
  manifest.ingest.reset();
  write_file_atomically(path("first/manifest.json"), manifest_to_json(manifest));
  EXPECT_THAT(extend_error("first", "b.csv"), HasSubstr("does not say how its log was read"));
}

TEST_F(ExtendTest, AFaultLeavesTheDataSetAsItWas) {
  write("a.csv", "user,item,time\n1,a,1\n");
  process("a.csv", "first");
  const auto before = dataset_files(path("first"));
  options_.extend = path("first");
  options_.output = path("first");
  for (const char* log : {"user,item,time\n1,b\n", "user,item\n1,b\n", "user,item,time\n", ""}) {
    write("b.csv", log);
    options_.ingest.input = path("b.csv");
    EXPECT_NE(refused(csv_), "") << log;
    EXPECT_TRUE(dataset_files(path("first")) == before);
  }
  fs::resize_file(path("first/vocab/item.arrow"), 100);
  write("b.csv", "user,item,time\n1,b,2\n");
  EXPECT_THAT(refused(csv_), AllOf(HasSubstr("item.arrow"), HasSubstr("corrupt")));
}

}  // namespace
}  // namespace seqfuse::data::data_extend_test
