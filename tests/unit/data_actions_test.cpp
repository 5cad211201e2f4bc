// Labels from action columns: order of values, stray values, bits.
#include "tests/unit/preprocess_run.h"

namespace seqfuse::data::data_actions_test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

class ActionsTest : public PreprocessTest {
 protected:
  ActionsTest() {
    csv_.action_columns = {"rating"};
    csv_.action_rule = ActionRule::values;
  }

  // A log whose rows have these actions.
  static std::string log(const std::vector<std::string>& values) {
    std::string text = "user,item,time,rating\n";
    for (size_t i = 0; i < values.size(); ++i) {
      text += fmt::format("1,{},{},{}\n", i, i, values[i]);
    }
    return text;
  }
  std::vector<std::string> names(const std::vector<std::string>& values) {
    return run_csv(log(values))->manifest().action_names;
  }
};

TEST_F(ActionsTest, NumbersAscend) {
  const auto dataset = run_csv(log({"10", "4.0", "0.5", "4", "4e0", "-0", "-3"}));
  EXPECT_THAT(dataset->user(0).actions, ElementsAre(4, 3, 2, 3, 3, 1, 0));
  EXPECT_THAT(dataset->manifest().action_names, ElementsAre("-3", "0", "0.5", "4", "10"));
  EXPECT_THAT(names({"9007199254740993", "9007199254740992", "0.5"}),
              ElementsAre("0.5", "9007199254740992", "9007199254740993"))
      << "equal as doubles";
}

TEST_F(ActionsTest, WordsAreInTheOrderOfTheirBytes) {
  EXPECT_THAT(names({"view", "buy", "View"}), ElementsAre("View", "buy", "view"));
}

TEST_F(ActionsTest, NumbersKeepTheirOrderAmongWords) {
  EXPECT_THAT(names({"view", "10", "buy", "9", "!"}), ElementsAre("9", "10", "!", "buy", "view"));
}

TEST_F(ActionsTest, AStrayWordAmongNumbersIsNamed) {
  const std::vector<std::string> values = {"1", "2", "10", "9", "NA", "1", "NA"};
  EXPECT_THAT(refused_csv(log(values)),
              AllOf(HasSubstr("in:6: column rating is 'NA'; expected a number"),
                    HasSubstr("--on-bad-row skip (rows: 2, distinct values: 1)")));
  options_.ingest.on_bad_row = BadRows::skip;
  const auto dataset = run_csv(log(values));
  EXPECT_THAT(dataset->manifest().action_names, ElementsAre("1", "2", "9", "10"));
  EXPECT_THAT(dataset->user(0).actions, ElementsAre(0, 1, 3, 2, 0));
  EXPECT_EQ(dataset->num_items(), 5) << "those of the rows that are left";
  EXPECT_EQ(result_.bad_rows, 2);
  EXPECT_THAT(result_.bad_examples, ElementsAre(HasSubstr("in:6: column rating is 'NA'")));
  EXPECT_THAT(result_.manifest.rules, Contains(HasSubstr("2 malformed rows of 7 were skipped")));
}

TEST_F(ActionsTest, MostlyNumbersIsSoByValuesOrByRows) {
  EXPECT_THAT(refused_csv(log({"NA", "NA", "NA", "NA", "1", "2", "10"})), HasSubstr("in:2:"))
      << "three of four values";
  EXPECT_THAT(refused_csv(log({"4", "4", "4", "n/a", "-"})), HasSubstr("'-'"))
      << "three of five rows";
  EXPECT_THAT(names({"4", "n/a"}), ElementsAre("4", "n/a"));
}

TEST_F(ActionsTest, AStrayWordIsFoundWhateverTheThreadsAndFiles) {
  std::string text = log({"1", "2"});
  for (int i = 0; i < 60000; ++i)
    text += fmt::format("{},7,1,{}\n", i % 100, i == 55555 ? "?" : "3");
  write("in/a.csv", log({"1"}));
  write("in/b.csv", text);
  write("in/c.csv", log({"?"}));
  EXPECT_THAT(refused(csv_), HasSubstr("b.csv:55559: column rating is '?'"));
}

TEST_F(ActionsTest, BitsAreNumbersOrBooleans) {
  csv_.action_columns = {"like", "buy"};
  csv_.action_rule = ActionRule::bits;
  const auto dataset = run_csv(
      "user,item,time,like,buy\n1,a,1,true,FALSE\n1,b,2,False,1\n1,c,3,yes,t\n1,d,4,0.0,N\n");
  EXPECT_THAT(dataset->user(0).actions, ElementsAre(1, 2, 3, 0));
  EXPECT_THAT(refused_csv("user,item,time,like,buy\n1,a,1,maybe,0\n"),
              HasSubstr("column like is 'maybe'; expected true or false, or a number"));
}

}  // namespace
}  // namespace seqfuse::data::data_actions_test
