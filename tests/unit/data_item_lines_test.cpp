// Lines "user item item ...", as SASRec and S3Rec have them; comments and quotes in any text.
#include "data/ingest/row_reader.h"
#include "tests/unit/preprocess_run.h"

namespace seqfuse::data::data_item_lines_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ItemLinesTest : public PreprocessTest {
 protected:
  ItemLinesTest() {
    options_.ingest.kind = InputKind::item_lines;
    options_.force = true;
    csv_.time_column = "";
    csv_.table.columns = {"user", "item"};
    csv_.table.dialect = {kAnySpace, false};
  }
};

TEST_F(ItemLinesTest, ManyItemsALine) {
  const auto dataset = run_csv("2 30 10 20\r\n\n  \nu1\t5  7\t \n10 1");
  ASSERT_EQ(dataset->num_users(), 3);
  EXPECT_EQ(dataset->user_id(0), "2");
  EXPECT_THAT(items(*dataset, 0), ElementsAre("30", "10", "20"));
  EXPECT_THAT(items(*dataset, 1), ElementsAre("1"));
  EXPECT_EQ(dataset->user_id(2), "u1");
  EXPECT_THAT(items(*dataset, 2), ElementsAre("5", "7"));
  EXPECT_FALSE(dataset->manifest().has_timestamps);
  EXPECT_EQ(dataset->manifest().action_kind, ActionKind::none);
  EXPECT_EQ(result_.rows, 6);
}

TEST_F(ItemLinesTest, OneItemALine) {
  const auto dataset = run_csv("1 3\n1 1\n2 3\n1 2\n");
  EXPECT_THAT(items(*dataset, 0), ElementsAre("3", "1", "2")) << "in the order of the file";
  EXPECT_THAT(items(*dataset, 1), ElementsAre("3"));
}

TEST_F(ItemLinesTest, AnotherDelimiter) {
  csv_.table.dialect.delimiter = ",";
  EXPECT_THAT(items(*run_csv("1, a b,c\n"), 0), ElementsAre("a b", "c"));
  EXPECT_THAT(refused_csv("1,2\n1,,2\n"), HasSubstr("in:2: value 2 of the line is blank"));
  EXPECT_THAT(refused_csv("1 2\n"), HasSubstr("separated by ',', found '1 2' alone"));
}

TEST_F(ItemLinesTest, ALineWithoutItems) {
  EXPECT_THAT(
      refused_csv("1 2\n7\n"),
      AllOf(HasSubstr("in:2: expected a user and one item or more, separated by spaces or tabs "
                      "(--delimiter gives another), found '7' alone"),
            HasSubstr("--on-bad-row skip")));
  options_.ingest.on_bad_row = BadRows::skip;
  EXPECT_EQ(run_csv("1 2\n7\n")->num_users(), 1);
  EXPECT_THAT(refused_csv("7\n"),
              AllOf(HasSubstr("holds no events"), HasSubstr("the first malformed row: "),
                    HasSubstr("in:1: expected a user and one item or more")));
  EXPECT_THAT(refused_csv("\n \n"), HasSubstr("holds no events"));
}

TEST_F(ItemLinesTest, QuotesAndBytesThatAreNotText) {
  EXPECT_THAT(items(*run_csv("\"1 \"2 3\n"), 0), ElementsAre("\"2", "3")) << "quotes mean nothing";
  EXPECT_THAT(refused_csv("1 2\n1 \xE9\n"), AllOf(HasSubstr("in:2:"), HasSubstr("not UTF-8")));
}

TEST_F(ItemLinesTest, FeaturesOfFolders) {
  csv_.user_id_feature = true;
  csv_.context = {{"country", "country"}};
  write("in/country=DE/a.txt", "1 2 3\n");
  write("in/country=FR/a.txt", "4 2\n");
  const auto dataset = run(csv_);
  EXPECT_EQ(dataset->context_value(1, dataset->context(1, 0)), "DE");
  EXPECT_EQ(dataset->context_value(1, dataset->context(1, 1)), "FR");
}

TEST_F(ItemLinesTest, ALineLongerThanAPiece) {
  std::string line = "1";
  std::vector<std::string> expected;
  for (int i = 0; i < 200000; ++i) {
    expected.push_back(std::to_string(i % 977));
    line += " " + expected.back();
  }
  EXPECT_EQ(items(*run_csv(line + "\n2 1\n"), 0), expected);
}

TEST_F(PreprocessTest, CommentsAreNoRows) {
  csv_.table.dialect.comment = "#";
  const std::string log =
      "# made by \"export\n#\nuser,item,time\n1,a,1\n#1,b,2\n1,\"#c\n#d\",3\n# \"\n";
  EXPECT_THAT(items(*run_csv(log), 0), ElementsAre("a", "#c\n#d")) << "but in a quoted field";
  EXPECT_THAT(refused_csv(log + "1,x\n"), HasSubstr("in:9: expected 3 columns")) << "lines count";
  csv_.table.dialect.comment = "//";
  EXPECT_THAT(items(*run_csv("user,item,time\n/1,a,1\n// 2\n"), 0), ElementsAre("a"));
}

TEST_F(PreprocessTest, QuotesThatMeanNothing) {
  const std::string log = "user,item,time\n1,\"7\"\" vinyl,1\n1,\"b,2\n";
  EXPECT_THAT(refused_csv(log),
              HasSubstr("in:2: text follows a closing quote; --quote none makes"));
  csv_.table.dialect.quotes = false;
  EXPECT_THAT(items(*run_csv(log), 0), ElementsAre("\"7\"\" vinyl", "\"b"));
}

}  // namespace
}  // namespace seqfuse::data::data_item_lines_test
