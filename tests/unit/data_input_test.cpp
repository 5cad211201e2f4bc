// Reading inputs: folders with files without rows, with partitions, with several kinds of files;
// encodings; titles next to the log.
#include "base/parallel.h"
#include "data/read/member_names.h"
#include "tests/unit/preprocess_run.h"

namespace seqfuse::data::data_input_test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(MemberNames, HiddenComponents) {
  for (const char* path :
       {"_SUCCESS", ".DS_Store", "a/.b.csv.crc", "__MACOSX/a/log.csv", "_x/log.csv"}) {
    EXPECT_TRUE(is_hidden(path)) << path;
  }
  for (const char* path : {"log.csv", "./log.csv", "../log.csv", "a_b/c.d", ""}) {
    EXPECT_FALSE(is_hidden(path)) << path;
  }
}

TEST(MemberNames, Kinds) {
  EXPECT_EQ(kind_of("a/log.TSV"), FileKind::tabs);
  EXPECT_EQ(kind_of("part-0.snappy.parquet"), FileKind::parquet);
  EXPECT_EQ(kind_of("log.jsonl"), FileKind::json_lines);
  EXPECT_EQ(kind_of("log.orc"), FileKind::other_data);
  for (const char* name : {"README", "a/Readme.txt", "LICENSE", "notes.md", "schema.json"}) {
    EXPECT_EQ(kind_of(name), FileKind::document) << name;
  }
  for (const char* name : {"log.csv", "u.data", "000000_0", "log.csv.2024-01-01", "readme_not"}) {
    EXPECT_EQ(kind_of(name), FileKind::text) << name;
  }
}

TEST(MemberNames, Partitions) {
  EXPECT_THAT(partitions_of("log/dt=2024-01-01/c=D%2fE%zz%4/x=__HIVE_DEFAULT_PARTITION__/a=b.csv"),
              ElementsAre(Pair("dt", "2024-01-01"), Pair("c", "D/E%zz%4"), Pair("x", "")));
  EXPECT_THAT(partitions_of("=1/x=/p"), ElementsAre(Pair("x", "")));
  EXPECT_THROW(partitions_of("c=%E9/p.csv"), DataError);
}

class InputTest : public PreprocessTest {
 protected:
  InputTest() {
    csv_.table.tabs_by_ending = true;
    options_.force = true;
  }
};

TEST_F(InputTest, FilesThatHoldNoRowsArePassedOver) {
  write("in/part-0.csv", "user,item,time\n1,a,1\n");
  write("in/part-1.csv", "");
  write("in/_SUCCESS", "");
  write("in/.part-0.csv.crc", "crc");
  write("in/__MACOSX/._part-0.csv", std::string_view("\0\5\x16\7", 4));
  write("in/_old/part-0.csv", "user,item,time\n1,b,1\n");
  write("in/README.md", "# a log\n");
  const auto dataset = run(csv_);
  EXPECT_THAT(items(*dataset, 0), ElementsAre("a"));
  EXPECT_THAT(result_.not_read, ElementsAre("README.md"));
  EXPECT_THAT(result_.manifest.rules,
              Contains(HasSubstr("Not read because of their endings: README.md")));
}

TEST_F(InputTest, AFileGivenByItsNameIsRead) {
  write("_log.csv", "user,item,time\n1,a,1\n");
  options_.ingest.input = path("_log.csv");
  EXPECT_EQ(run(csv_)->num_users(), 1);
}

TEST_F(InputTest, FoldersWithoutALogSaySo) {
  write("in/_x/a.csv", "user,item,time\n");
  EXPECT_THAT(refused(csv_), HasSubstr("names that begin with . or _"));
  write("in/README", "x");
  EXPECT_THAT(refused(csv_),
              AllOf(HasSubstr("no delimited text, JSON lines or Parquet"), HasSubstr("README")));
  write("in/log.avro", "Obj");
  EXPECT_THAT(refused(csv_),
              HasSubstr("log.avro is neither delimited text nor Parquet nor JSON lines"));
}

TEST_F(InputTest, EachFileHasItsOwnDelimiterAndOrderOfColumns) {
  write("in/a.csv", "\xEF\xBB\xBFuser,item,time\n1,\"a\tb\",2\n");
  write("in/b.tsv", "time\tmore\titem\tuser\n1\tx\tc,d\t1\n");
  write("in/c.csv", "\xEF\xBB\xBFitem,user,time\r\ne,1,3\r\n");
  EXPECT_THAT(items(*run(csv_), 0), ElementsAre("c,d", "a\tb", "e"));
  write("in/d.csv", "user,item\n1,x\n");
  EXPECT_THAT(refused(csv_), HasSubstr("d.csv has no column 'time'"));
}

TEST_F(InputTest, AMissingColumnSaysWhatToDo) {
  EXPECT_THAT(refused_csv("who,item,time\n"), HasSubstr("\n  --user-column gives its name"));
  EXPECT_THAT(refused_csv("user,what,time\n"), HasSubstr("\n  --item-column gives its name"));
  EXPECT_THAT(refused_csv("user;item;time\n"),
              HasSubstr("is the file separated by ';'? give --delimiter ';'"));
  EXPECT_THAT(refused_csv("user\titem\n"), HasSubstr("give --delimiter '\\t'"));
  EXPECT_THAT(refused_csv("user_id:token\titem_id:token\n"), HasSubstr("--format recbole"));
  EXPECT_THAT(refused_csv("1 20 30\n"), HasSubstr("--format sasrec"));
  std::filesystem::remove(path("in"));
  write("in/log.csv", "user,item,time\n1,a,1\n");
  write("in/prices.csv", "item,price\na,2\n");
  csv_.titles = TitleTable{{"titles.csv", "", ""}, TableFormat(), "item", "title"};
  EXPECT_THAT(refused(csv_), HasSubstr("all files of " + path("in").string() +
                                       " are read as logs but titles.csv: move others out of it"));
}

TEST_F(InputTest, PartitionsAreColumns) {
  write("in/dt=2024-01-02/country=D%2FE/part-0.csv", "user,item\n1,b\n");
  write("in/dt=2024-01-01/country=__HIVE_DEFAULT_PARTITION__/part-0.csv", "item,user\na,1\nc,2\n");
  csv_.time_column = "dt";
  csv_.context = {{"country", "country"}};
  const auto dataset = run(csv_);
  EXPECT_THAT(items(*dataset, 0), ElementsAre("a", "b"));
  EXPECT_THAT(dataset->user(0).timestamps, ElementsAre(1704067200, 1704153600));
  EXPECT_EQ(dataset->context(0, 0), 0) << "blank, as the first row has it";
  EXPECT_EQ(dataset->manifest().context[0].vocab_size, 1);
  EXPECT_THAT(result_.manifest.rules, Contains(HasSubstr("1 rows differed")));
}

TEST_F(InputTest, PartitionsOfUserItemAndAction) {
  csv_.time_column = "";
  csv_.action_columns = {"kind"};
  csv_.action_rule = ActionRule::values;
  write("in/user=7/kind=view/0.csv", "item\na\n");
  write("in/user=7/kind=buy/0.csv", "item,kind\nb,sell\n");
  const auto dataset = run(csv_);
  EXPECT_EQ(dataset->user_id(0), "7");
  EXPECT_THAT(items(*dataset, 0), ElementsAre("b", "a"));
  EXPECT_THAT(dataset->manifest().action_names, ElementsAre("sell", "view"))
      << "a column of the file goes before the folder's";
}

TEST_F(InputTest, RowsThatAreNotUtf8) {
  const std::string log = "user,item,time\n1,caf\xE9,1\n1,b,2\n";
  EXPECT_THAT(refused_csv(log), AllOf(HasSubstr("in:2: '1,caf\\xE9,1' is not UTF-8"),
                                      HasSubstr("--encoding latin1")));
  EXPECT_THAT(refused_csv("user,caf\xE9\n"), HasSubstr("in:1: 'user,caf\\xE9'"));
  options_.ingest.on_bad_row = BadRows::skip;
  EXPECT_THAT(items(*run_csv(log), 0), ElementsAre("b"));
  options_.ingest.on_bad_row = BadRows::error;
  options_.ingest.encoding = Encoding::latin1;
  EXPECT_THAT(items(*run_csv(log), 0), ElementsAre("caf\xC3\xA9", "b"));
}

TEST_F(InputTest, NulBytesAndCrAlone) {
  EXPECT_THAT(refused_csv(std::string_view("user,item,time\n1,a\0,1\n", 22)),
              AllOf(HasSubstr("in:2:"), HasSubstr("NUL")));
  EXPECT_THAT(refused_csv("user,item,time\r1,a,1\r"), HasSubstr("CR without LF"));
  EXPECT_THAT(refused_csv("user,item,time\n1,a,1\r2,b,2\n"), HasSubstr("in:2:"));
}

TEST_F(InputTest, Titles) {
  csv_.titles = TitleTable{{"titles.tsv", "", ""}, csv_.table, "item", "title"};
  write("in/log.csv", "user,item,time\n1,a,1\n1,b,2\n");
  EXPECT_THAT(refused(csv_), HasSubstr("has no titles.tsv, the file of titles; it has: log.csv"));
  write("in/titles.tsv", "item\ttitle\na\tOne, \"two\"\nb\tcaf\xE9\n");
  EXPECT_THAT(refused(csv_), AllOf(HasSubstr("titles.tsv:3:"), HasSubstr("is not UTF-8")));
  options_.ingest.encoding = Encoding::windows_1252;
  const auto dataset = run(csv_);
  EXPECT_EQ(dataset->item_title(1), "One, \"two\"");
  EXPECT_EQ(dataset->item_title(2), "caf\xC3\xA9");
}

TEST_F(InputTest, AColumnThatIsThereTwice) {
  EXPECT_THAT(refused_csv("user,item,time,item\n1,a,1,b\n"), HasSubstr("two columns 'item'"));
  EXPECT_EQ(run_csv("user,item,time,x,x\n1,a,1,b,c\n")->num_items(), 1);
}

TEST_F(InputTest, FractionsOrderEventsOfOneSecond) {
  const auto numbers = run_csv("user,item,time\n1,late,1700000000.9\n1,early,1700000000.1\n");
  EXPECT_THAT(items(*numbers, 0), ElementsAre("early", "late"));
  EXPECT_THAT(numbers->user(0).timestamps, ElementsAre(1700000000, 1700000000));
  EXPECT_EQ(numbers->manifest().time_units_per_second, 0);
  const auto dates =
      run_csv("user,item,time\n1,late,2023-11-14T22:13:20.5Z\n1,early,2023-11-14T22:13:20.1Z\n");
  EXPECT_THAT(items(*dates, 0), ElementsAre("early", "late"));
  EXPECT_EQ(dates->manifest().time_units_per_second, 1);
  options_.deduplicate = true;
  EXPECT_EQ(run_csv("user,item,time\n1,a,1.5\n1,a,1.25\n1,a,1.50\n")->manifest().num_events, 2);
}

TEST_F(InputTest, NumbersBesideDatesHaveNoUnit) {
  EXPECT_THAT(refused_csv("user,item,time\n1,a,1714979289000\n1,b,2024-05-07T00:00:00Z\n"),
              HasSubstr("but numbers without a unit in"));
}

TEST_F(InputTest, ArchivesInAFolderAreRefused) {
  write("in/part-0.csv", "user,item,time\n1,a,1\n");
  // An empty zip file: only the end record.
  write("in/part-1.zip", std::string("PK\x05\x06", 4) + std::string(18, '\0'));
  EXPECT_THAT(refused(csv_), HasSubstr("part-1.zip is an archive inside a folder"));
}

TEST_F(InputTest, QuotedFieldsFarBehindAQuoteThatOpensNone) {
  std::string log = "user,item,time,note\n";
  for (int i = 0; i < 20001; ++i) log += fmt::format("{},7\" vinyl,{},\"two\nlines\"\n", i % 50, i);
  EXPECT_EQ(run_csv(log)->manifest().num_events, 20001);
}

TEST_F(InputTest, ItemsOfSequencesThatAreSkippedAreNoItems) {
  options_.ingest.kind = InputKind::processed_seqs;
  options_.ingest.on_bad_row = BadRows::skip;
  csv_.time_column = "";
  const auto dataset =
      run_csv(",user_id,item_id\n0,1,\"[7, 8]\"\n1,2,\"[9, , 7]\"\n2,3,\"[caf\xE9]\"\n");
  EXPECT_EQ(dataset->num_users(), 1);
  EXPECT_EQ(dataset->num_items(), 2);
  EXPECT_EQ(result_.bad_rows, 2);
}

TEST_F(InputTest, SequencesOfSeveralFilesHaveTheSameColumns) {
  options_.ingest.kind = InputKind::processed_seqs;
  write("in/a.csv", "user_id,item_id,timestamp\n1,[7],[1]\n");
  write("in/b.csv", "user_id,item_id\n2,[7]\n");
  EXPECT_THAT(refused(csv_), HasSubstr("b.csv has no times, unlike a.csv"));
}

}  // namespace
}  // namespace seqfuse::data::data_input_test
