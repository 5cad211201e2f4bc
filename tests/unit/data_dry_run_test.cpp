// preprocess --dry-run: what it says about a log.
#include "data/ingest/dry_run.h"

#include "data/ingest/suspicions.h"
#include "tests/unit/preprocess_run.h"

namespace seqfuse::data::data_dry_run_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class DryRunTest : public PreprocessTest {
 protected:
  std::string report(std::string_view log) {
    write("in", log);
    const DryRun found = dry_run(csv_, options_.ingest);
    EXPECT_EQ(found.error, "");
    return found.report;
  }
  // Nothing but the input may be there afterwards.
  ~DryRunTest() override {
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
      EXPECT_EQ(entry.path().filename(), "in");
    }
  }
};

TEST_F(DryRunTest, ColumnsRowsAndCounts) {
  csv_.action_columns = {"kind"};
  csv_.action_rule = ActionRule::values;
  csv_.context = {{"city", "city"}};
  EXPECT_EQ(report("user,item,time,kind,city,note\n"
                   "u1,a,1709251200,buy,Rome,x\n"
                   "2,b,1709251260,view,,y\n"
                   "u1,b,1709337600,view,Rome,\n"),
            "read: in\n"
            "columns:\n"
            "  column  role     type     distinct  blank  first values\n"
            "  user    user     mixed    2         0      u1, 2\n"
            "  item    item     text     2         0      a, b\n"
            "  time    time     integer  3         0      1709251200, 1709251260, 1709337600\n"
            "  kind    action   text     2         0      buy, view\n"
            "  city    context  text     1         1      Rome\n"
            "  note    -        text     2         1      x, y\n"
            "first events as understood:\n"
            "  user  item  time        action  city\n"
            "  u1    a     1709251200  buy     Rome\n"
            "  2     b     1709251260  view    (unknown)\n"
            "  u1    b     1709337600  view    Rome\n"
            "2 users, 2 items, 3 events\n"
            "time: 1709251200 to 1709337600 (as seconds since 1970: 2024-03-01 00:00:00 UTC to "
            "2024-03-02 00:00:00 UTC)\n"
            "nothing suspicious\n");
}

TEST_F(DryRunTest, Milliseconds) {
  EXPECT_THAT(report("user,item,time\n1,a,1709251200000\n2,b,1709251200001\n"),
              AllOf(HasSubstr("(as milliseconds since 1970: 2024-03-01 00:00:00 UTC to"),
                    HasSubstr("column time: 1709251200001 looks like milliseconds since 1970 "
                              "(2024-03-01 00:00:00 UTC); times are kept as they are: divide them "
                              "by 1000 if seconds are meant")));
  EXPECT_THAT(report("user,item,time\n1,a,1709251200\n2,b,1709251200001\n"),
              HasSubstr("column time: 1709251200 looks like seconds, but 1709251200001 like "
                        "milliseconds: mixed units?"));
}

TEST(LikelyUnit, ByTheSizeOfNumbers) {
  int64_t units = 0;
  EXPECT_EQ(likely_unit(99'999'999, units), "");
  EXPECT_EQ(likely_unit(-5, units), "");
  EXPECT_EQ(likely_unit(1e8, units), "seconds");
  EXPECT_EQ(likely_unit(1.7e12, units), "milliseconds");
  EXPECT_EQ(units, 1000);
  EXPECT_EQ(likely_unit(1.7e15, units), "microseconds");
  EXPECT_EQ(likely_unit(1.7e18, units), "nanoseconds");
  EXPECT_EQ(units, 1'000'000'000);
}

TEST_F(DryRunTest, TimesThatAreNone) {
  EXPECT_THAT(report("user,item,time\n1,a,1\n2,b,17\n"),
              HasSubstr("column time: 1 to 17 are no times since 1970"));
  EXPECT_THAT(report("user,item,time\n1,a,0\n2,b,1709251200\n"), HasSubstr("a time is 0"));
  EXPECT_THAT(report("user,item,time\n1,a,2024-03-01\n2,b,2999-03-01\n"),
              AllOf(HasSubstr("the last time, 2999-03-01 00:00:00 UTC, is in the future"),
                    HasSubstr("time: 2024-03-01 00:00:00 UTC to 2999-03-01")));
  csv_.time_column = "";
  EXPECT_THAT(report("user,item,event_ts\n1,a,1709251200\n2,b,1709251260\n"),
              AllOf(HasSubstr("no times: each user's events keep their order"),
                    HasSubstr("no --time-column, but column event_ts holds times such as "
                              "1709251200")));
}

TEST_F(DryRunTest, IdsThatAreFloatsOrMissing) {
  EXPECT_THAT(report("user,item,time\n1,12.0,1709251200\nnan,13,1709251260\n2,1.5,1709251261\n"),
              AllOf(HasSubstr("column item: 1 item ids are decimals such as '12.0'"),
                    HasSubstr("column user: 1 user ids are 'nan': a missing value?"),
                    HasSubstr("item    item  number")));
}

TEST_F(DryRunTest, DuplicatesConstantsAndBalance) {
  std::string log = "user,item,time,shop,gone\n";
  for (int i = 0; i < 20; ++i) log += fmt::format("{},a,170925{:04},web,\n", i < 15 ? 0 : i, i);
  log += "19,a,1709250019,web,\n";
  const std::string found = report(log);
  EXPECT_THAT(found, AllOf(HasSubstr("1 events equal an earlier one"),
                           HasSubstr("column item is 'a' in all rows"),
                           HasSubstr("column shop is 'web' in all rows"),
                           HasSubstr("column gone is blank in all rows"),
                           HasSubstr("user '0' has 15 of 21 events")));
  EXPECT_THAT(found, Not(HasSubstr("each user has one event")));
  log = "user,item,time\n";
  for (int i = 0; i < 20; ++i) log += fmt::format("u{},i{},170925{:04}\n", i, i, i);
  EXPECT_THAT(report(log), AllOf(HasSubstr("each user has one event: is --user-column right?"),
                                 HasSubstr("each item has one event")));
}

TEST_F(DryRunTest, MalformedRowsAreCounted) {
  EXPECT_THAT(report("user,item,time\n1,a,1709251200\n1,a\n1,b,soon\n"),
              AllOf(HasSubstr("2 of 3 rows are malformed; the first: "),
                    HasSubstr("in:3: expected 3 columns, found 2")));
}

TEST_F(DryRunTest, ColumnsAreShownEvenIfOneIsMissing) {
  write("in", "who,item,time\n1,a,5\n2,b,6\n");
  const DryRun found = dry_run(csv_, options_.ingest);
  EXPECT_THAT(found.error, HasSubstr("has no column 'user'; its columns: who, item, time"));
  EXPECT_THAT(found.report, AllOf(HasSubstr("  who     -     integer  2         0      1, 2\n"),
                                  HasSubstr("  item    item  text     2")));
}

TEST_F(DryRunTest, OnlyTheFirstRowsOfALongLog) {
  std::string log = "user,item,time\n";
  for (int i = 0; i < 100000; ++i)
    log += fmt::format("{},{},{}\n", i % 99, i % 1000, 1700000000 + i);
  write("in", log);
  const DryRun found = dry_run(csv_, options_.ingest, /*most_bytes=*/1 << 19);
  EXPECT_EQ(found.error, "");
  EXPECT_THAT(found.report, AllOf(HasSubstr("read: in (the first 2"), HasSubstr("99 users")));
  EXPECT_THAT(found.report, Not(HasSubstr("100000 events")));
}

TEST_F(DryRunTest, JsonShowsAllMembers) {
  EXPECT_THAT(report("{\"user\":1,\"item\":\"x\",\"time\":1709251200,\"more\":{\"a\":[1]}}\n"),
              AllOf(HasSubstr("more.a  -     text"), HasSubstr("1 users, 1 items, 1 events")));
}

TEST_F(DryRunTest, ItemLines) {
  options_.ingest.kind = InputKind::item_lines;
  csv_.time_column = "";
  csv_.table.columns = {"user", "item"};
  csv_.table.dialect = {" ", false};
  EXPECT_THAT(report("7 1 2\n8 1\n"),
              AllOf(HasSubstr("  user    user  integer  2         0      7, 8"),
                    HasSubstr("2 users, 2 items, 3 events")));
}

TEST_F(DryRunTest, EmptyAndMissing) {
  write("in", "");
  EXPECT_THAT(dry_run(csv_, options_.ingest).error, HasSubstr("is empty"));
  options_.ingest.input = path("gone");
  EXPECT_THAT(dry_run(csv_, options_.ingest).error, HasSubstr("does not exist"));
}

}  // namespace
}  // namespace seqfuse::data::data_dry_run_test
