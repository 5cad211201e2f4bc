// RecBole's atomic files: typed headers, features of users and items in files of their own.
#include "tests/unit/preprocess_run.h"

namespace seqfuse::data::data_recbole_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class RecBoleTest : public PreprocessTest {
 protected:
  RecBoleTest() {
    options_.force = true;
    csv_.table.typed_header = true;
    csv_.table.dialect = {"\t", false};
    csv_.log = {"", "", ".inter"};
    csv_.user_column = "user_id";
    csv_.item_column = "item_id";
    csv_.time_column = "timestamp";
    csv_.time_if_present = true;
  }
};

constexpr const char* kInter =
    "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
    "196\t242\t3\t8.81250949E8\n"
    "186\t302\t3.5\t891717742\n"
    "196\t\"x\t1\t881250948\n";

TEST_F(RecBoleTest, LogUsersAndTitles) {
  csv_.action_columns = {"rating"};
  csv_.action_rule = ActionRule::values;
  csv_.user_id_feature = true;
  csv_.context = {{"age", "age"}, {"gender", "gender"}};
  csv_.users = {{"", "", ".user"}, csv_.table, "user_id"};
  csv_.titles = {{"", "", ".item"}, csv_.table, "item_id", "movie_title"};
  write("in/ml-100k.inter", kInter);
  write("in/ml-100k.user", "user_id:token\tage:float\tgender:token\n196\t49\tM\n7\t20\tF\n");
  write("in/ml-100k.item",
        "item_id:token\tmovie_title:token_seq\tclass:token_seq\n242\tKolya, \"the\"\tComedy\n");
  const auto dataset = run(csv_);
  ASSERT_EQ(dataset->num_users(), 2);
  EXPECT_THAT(items(*dataset, 1), ElementsAre("\"x", "242"));
  EXPECT_THAT(dataset->user(1).timestamps, ElementsAre(881250948, 881250949));
  EXPECT_THAT(dataset->manifest().action_names, ElementsAre("1", "3", "3.5"));
  EXPECT_THAT(dataset->user(1).actions, ElementsAre(0, 1));
  EXPECT_EQ(dataset->context(1, 0), 0) << "user 186 is not in the file of users";
  EXPECT_EQ(dataset->context_value(1, dataset->context(1, 1)), "49");
  EXPECT_EQ(dataset->context_value(2, dataset->context(2, 1)), "M");
  EXPECT_EQ(dataset->item_title(*dataset->find_item("242")), "Kolya, \"the\"");
}

TEST_F(RecBoleTest, WithoutTimestampFileOrderCounts) {
  write("in/a.inter", "item_id:token\tuser_id:token\nb\t1\na\t1\n");
  const auto dataset = run(csv_);
  EXPECT_THAT(items(*dataset, 0), ElementsAre("b", "a"));
  EXPECT_FALSE(dataset->manifest().has_timestamps);
}

TEST_F(RecBoleTest, OneFileOfAnyName) {
  write("in", kInter);
  EXPECT_EQ(run(csv_)->manifest().num_events, 3);
  csv_.context = {{"age", "age"}};
  csv_.users = {{"", "", ".user"}, csv_.table, "user_id"};
  EXPECT_THAT(refused(csv_), HasSubstr("has no *.user (context features of csv)"));
}

TEST_F(RecBoleTest, HeadersThatAreNotOfThisKind) {
  const auto refused_inter = [&](const std::string& content) {
    write("in/a.inter", content);
    return refused(csv_);
  };
  EXPECT_THAT(refused_inter("user_id\titem_id\n1\t2\n"),
              AllOf(HasSubstr("a.inter: column 1 of the header is 'user_id'"),
                    HasSubstr("expected NAME:TYPE"), HasSubstr("float_seq")));
  EXPECT_THAT(refused_inter("user_id:token\titem_id:int\n1\t2\n"),
              HasSubstr("column 2 of the header is 'item_id:int'"));
  EXPECT_THAT(refused_inter("user_id:token,item_id:token\n1,2\n"),
              HasSubstr("give --delimiter ','"));
  EXPECT_THAT(refused_inter(":token\titem_id:token\n1\t2\n"), HasSubstr("column 1 of the header"));
  EXPECT_THAT(refused_inter("user_id:float\titem_id:token\n1\t2\n"),
              HasSubstr("column user_id is float; expected ids of type token"));
  EXPECT_THAT(refused_inter("user_id:token\titem_id:token\ttimestamp:float_seq\n1\t2\t3 4\n"),
              HasSubstr("column timestamp holds lists (float_seq)"));
  EXPECT_THAT(refused_inter("user_id:token\titem_id_list:token_seq\titem_id:token\n1\t2 3\t4\n"),
              AllOf(HasSubstr("already cut into samples"), HasSubstr("item_id_list")));
  EXPECT_THAT(refused_inter("user_id:token\titem_id:token\n1\t2\t3\n"),
              HasSubstr("a.inter:2: expected 2 columns, found 3"));
}

TEST_F(RecBoleTest, ListsAreNoContext) {
  csv_.context = {{"hobbies", "hobbies"}};
  csv_.users = {{"", "", ".user"}, csv_.table, "user_id"};
  write("in/a.inter", kInter);
  write("in/a.user", "user_id:token\thobbies:token_seq\n196\tchess go\n");
  EXPECT_THAT(refused(csv_), HasSubstr("column hobbies holds lists (token_seq)"));
}

TEST_F(RecBoleTest, FoldersWithoutALogSaySo) {
  write("in/a.item", "item_id:token\n1\n");
  EXPECT_THAT(refused(csv_), AllOf(HasSubstr("has no *.inter"), HasSubstr("a.item")));
}

}  // namespace
}  // namespace seqfuse::data::data_recbole_test
