// Train, validation and test files that others have made.
#include "data/batch/split.h"
#include "data/ingest/given_split.h"
#include "tests/unit/preprocess_run.h"

namespace seqfuse::data::data_given_split_test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(GivenSplit, PartsByName) {
  EXPECT_EQ(part_of("ml-1m.train.inter"), Part::train);
  EXPECT_EQ(part_of("Training_2.csv"), Part::train);
  for (const char* name : {"valid.csv", "x_val.tsv", "dev", "validation-0.parquet"}) {
    EXPECT_EQ(part_of(name), Part::validation) << name;
  }
  EXPECT_EQ(part_of("test2.csv"), Part::test);
  for (const char* name : {"latest.csv", "items.csv", "train_test.csv", "trains.csv", ""}) {
    EXPECT_EQ(part_of(name), std::nullopt) << name;
  }
}

class GivenSplitTest : public PreprocessTest {
 protected:
  GivenSplitTest() {
    options_.ingest.given_split = true;
    options_.force = true;
    write("in/test.csv", "user,item,time\n1,t,9\n2,t,5\n");
    write("in/train.csv", "user,item,time\n2,b,2\n1,b,2\n1,a,1\n2,a,5\n");
    write("in/valid.csv", "user,item,time\n1,v,3\n2,v,5\n");
    write("in/items.csv", "item,title\na,A\n");
  }
};

TEST_F(GivenSplitTest, LeaveOneOutGivesTheParts) {
  const auto dataset = run(csv_);
  EXPECT_THAT(items(*dataset, 0), ElementsAre("a", "b", "v", "t"));
  EXPECT_THAT(items(*dataset, 1), ElementsAre("b", "a", "v", "t")) << "times of user 2 are equal";
  EXPECT_THAT(result_.not_read, ElementsAre("items.csv"));
  EXPECT_THAT(result_.manifest.rules, Contains(HasSubstr("split leave_one_out gives these parts")));
  const Split split = make_split(*dataset, {});
  const auto last_items = [&](const std::vector<Sample>& samples) {
    std::vector<std::string> ids;
    for (const Sample& sample : samples) {
      ids.push_back(dataset->item_id(dataset->user(sample.user).items[sample.end - 1]));
    }
    return ids;
  };
  EXPECT_THAT(last_items(split.validation), ElementsAre("v", "v"));
  EXPECT_THAT(last_items(split.test), ElementsAre("t", "t"));
}

TEST_F(GivenSplitTest, WithoutTimes) {
  csv_.time_column = "";
  EXPECT_THAT(items(*run(csv_), 0), ElementsAre("b", "a", "v", "t"));
}

TEST_F(GivenSplitTest, OtherSplitsAreRefused) {
  write("in/test.csv", "user,item,time\n1,t,9\n2,t,5\n2,u,6\n");
  EXPECT_THAT(refused(csv_),
              AllOf(HasSubstr("user '2' has 2 training, 1 validation and 2 test events"),
                    HasSubstr("1 of 2 users differ"), HasSubstr("temporal or user")));
  write("in/test.csv", "user,item,time\n1,t,9\n");
  EXPECT_THAT(refused(csv_), HasSubstr("and 0 test events"));
  write("in/test.csv", "user,item,time\n1,t,2\n2,t,5\n");
  EXPECT_THAT(refused(csv_), HasSubstr("user '1' has a validation event after the test event"));
  write("in/valid.csv", "user,item,time\n1,v,1\n2,v,5\n");
  EXPECT_THAT(refused(csv_), HasSubstr("user '1' has training events after the validation event"));
}

TEST_F(GivenSplitTest, EveryPartIsNeeded) {
  std::filesystem::remove(path("in/valid.csv"));
  EXPECT_THAT(refused(csv_), AllOf(HasSubstr("no events in a file with valid, validation, val or "
                                             "dev in its name"),
                                   HasSubstr("test.csv, train.csv")));
  options_.ingest.input = path("in/train.csv");
  EXPECT_THAT(refused(csv_), HasSubstr("--given-split"));
}

}  // namespace
}  // namespace seqfuse::data::data_given_split_test
