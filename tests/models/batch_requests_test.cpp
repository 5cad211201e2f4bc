// Users of a batch from lines, CSV, TSV, JSON lines and Parquet; lists of items; progress.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "serving/batch/batch_progress.h"
#include "serving/batch/item_list.h"
#include "serving/batch/request_reader.h"
#include "tests/unit/memory_dataset.h"
#include "tests/unit/parquet_files.h"

namespace seqfuse::serving::batch_requests_test {
namespace {
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;

class BatchRequests : public data::ParquetTest {
 protected:
  std::string path(const std::string& name) const { return (directory_.path() / name).string(); }

  std::string file(const std::string& name, const std::string& content) const {
    std::ofstream(path(name)) << content;
    return path(name);
  }

  std::unique_ptr<RequestReader> reader(const std::string& file,
                                        const std::string& user_column = "") const {
    return open_requests(file, table_format(file, ""), {.user_column = user_column});
  }

  std::vector<UserRequest> read(const std::string& file,
                                const std::string& user_column = "") const {
    const auto requests = reader(file, user_column);
    std::vector<UserRequest> all;
    for (UserRequest request; requests->next(request);) all.push_back(request);
    return all;
  }

  std::string error_of(const std::string& file, const std::string& user_column = "") const {
    try {
      read(file, user_column);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
};

void expect_users(const std::vector<UserRequest>& requests, const std::vector<std::string>& users) {
  std::vector<std::string> found;
  for (const UserRequest& request : requests) {
    EXPECT_EQ(request.request.user, request.user);
    EXPECT_FALSE(request.request.items);
    found.push_back(request.user);
  }
  EXPECT_EQ(found, users);
}

TEST_F(BatchRequests, UsersAreLinesOrAColumn) {
  const std::vector<std::string> users = {"a,b", "7", "x y"};
  expect_users(read(file("users.txt", "a,b\n\n  7\t\r\n   \nx y")), users);
  expect_users(read(file("users", "a,b\n7\nx y\n")), users);
  expect_users(read(file("users.csv", "age,user\n3,\"a,b\"\n,7\n5,x y\n")), users);
  expect_users(read(file("one.csv", "who\n\"a,b\"\n7\nx y\n")), users);
  expect_users(read(file("named.tsv", "user\tmember\n1\ta,b\n1\t7\n1\tx y\n"), "member"), users);
  expect_users(
      read(file("users.jsonl", "{\"user\": \"a,b\"}\n{\"user\": 7}\n\n{\"user\": \"x y\"}\n")),
      users);
  write("users.parquet", {{"user_id", data::array<arrow::StringBuilder>(users)},
                          {"nested", data::lists({{1}, {}, {2}})}});
  expect_users(read(path("users.parquet")), users);
  write("numbers.parquet", {{"user", data::array<arrow::Int64Builder, int64_t>({7, -3, 10})}});
  expect_users(read(path("numbers.parquet")), {"7", "-3", "10"});
  EXPECT_FALSE(reader(path("users.txt"))->gives_histories());
  EXPECT_FALSE(reader(path("users.csv"))->gives_histories());
}

TEST_F(BatchRequests, AllUsersOfADataset) {
  const auto dataset = data::MemoryDataset::of_lengths({2, 1, 3});
  const auto all = read_all_users(dataset);
  std::vector<UserRequest> requests;
  for (UserRequest request; all->next(request);) requests.push_back(request);
  expect_users(requests, {"0", "1", "2"});
  EXPECT_EQ(all->done(), 1.0);
}

// u: three events with times and actions, context and candidates; v: one event alone.
void expect_histories(const std::vector<UserRequest>& requests) {
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].user, "u");
  EXPECT_EQ(requests[1].user, "v");
  const Request &u = requests[0].request, &v = requests[1].request;
  EXPECT_FALSE(u.user || v.user);
  EXPECT_THAT(*u.items, ElementsAre("i1", "i2", "i1"));
  EXPECT_THAT(*u.timestamps, ElementsAre("10", "11.5", "12"));
  EXPECT_THAT(*u.actions, ElementsAre("buy", "1", "like"));
  EXPECT_THAT(*u.candidates, ElementsAre("i3", "i4"));
  EXPECT_EQ(u.request_time, "20");
  EXPECT_THAT(u.context, ElementsAre(Pair("country", "de")));
  EXPECT_THAT(*v.items, ElementsAre("i3"));
  EXPECT_FALSE(v.request_time);
  EXPECT_THAT(v.context, IsEmpty());
}

TEST_F(BatchRequests, HistoriesAreWholeInARow) {
  expect_histories(
      read(file("histories.jsonl",
                R"(
{"user": "u", "items": ["i1", "i2", "i1"], "timestamps": [10, "11.5", 12], "actions": ["buy", 1, "like"],)"
                R"( "candidates": ["i3", "i4"], "request_time": 20, "context": {"country": "de"}}
{"user": "v", "items": ["i3"]}
)")));
  expect_histories(
      read(file("histories.csv",
                "user,items,timestamps,actions,candidates,request_time,context.country\n"
                "u,\"i1, i2,i1\",\"10,11.5,12\",\"buy,1,like\",\"i3,i4\",20,de\n"
                "v,i3,,,,,\n")));
  for (const char* name : {"histories.jsonl", "histories.csv"}) {
    EXPECT_TRUE(reader(path(name))->gives_histories());
    EXPECT_FALSE(reader(path(name))->reads_events());
  }
  const auto none = read(file("none.csv", "user,items\nu,\n"));
  ASSERT_EQ(none.size(), 1U);
  EXPECT_THAT(*none[0].request.items, IsEmpty());  // a user without events, not one of the data set
}

TEST_F(BatchRequests, HistoriesAreRowsOfEvents) {
  const auto requests =
      read(file("events.csv",
                "user_id,item_id,timestamp,action,candidates,request_time,context.country\n"
                "u,i1,10,buy,\"i3,i4\",20,de\nu,i2,11.5,1,,,\nu,i1,12,like,,,\nv,i3,10,buy,,,\n"));
  expect_histories(requests);
  EXPECT_TRUE(reader(path("events.csv"))->reads_events());
  EXPECT_THAT(requests[1].where, HasSubstr("events.csv:5"));
  EXPECT_FALSE(read(file("bare.csv", "user,item\nu,i1\n"))[0].request.timestamps);
}

TEST_F(BatchRequests, ParquetHasListsAndTimes) {
  const auto texts = std::make_shared<arrow::StringBuilder>();
  arrow::ListBuilder items(arrow::default_memory_pool(), texts);
  ASSERT_TRUE(items.Append().ok() && texts->Append("i1").ok() && texts->Append("i,2").ok());
  ASSERT_TRUE(items.AppendNull().ok());
  ASSERT_TRUE(items.Append().ok() && texts->Append("i3").ok());
  const auto micro = std::make_shared<arrow::TimestampBuilder>(
      arrow::timestamp(arrow::TimeUnit::MICRO, "UTC"), arrow::default_memory_pool());
  arrow::ListBuilder times(arrow::default_memory_pool(), micro);
  ASSERT_TRUE(times.Append().ok() && micro->Append(1'714'979'289'250'000).ok() &&
              micro->Append(1'714'979'290'000'000).ok());
  ASSERT_TRUE(times.AppendNull().ok() && times.AppendNull().ok());
  write("histories.parquet",
        {{"user", data::array<arrow::StringBuilder>(std::vector<std::string>{"u", "w", "v"})},
         {"items", *items.Finish()},
         {"timestamps", *times.Finish()},
         {"candidates", data::lists({{7, 8}, {}, {9}})},
         {"context.age", data::array<arrow::Int64Builder, int64_t>({30, 40, 50})}});
  const auto requests = read(path("histories.parquet"));
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_THAT(*requests[0].request.items, ElementsAre("i1", "i,2"));
  EXPECT_THAT(*requests[0].request.timestamps,
              ElementsAre(HasSubstr("2024-05-06 07:08:09.25"), HasSubstr("2024-05-06 07:08:10")));
  EXPECT_THAT(*requests[0].request.candidates, ElementsAre("7", "8"));
  EXPECT_THAT(requests[0].request.context, ElementsAre(Pair("age", "30")));
  EXPECT_THAT(*requests[1].request.items, IsEmpty());
  EXPECT_THAT(*requests[1].request.candidates, IsEmpty());
  EXPECT_FALSE(requests[1].request.timestamps);
  EXPECT_THAT(*requests[2].request.items, ElementsAre("i3"));
  EXPECT_THAT(requests[2].where, HasSubstr("histories.parquet, row 3"));
}

TEST_F(BatchRequests, LongFilesAreReadInPieces) {
  // Several pieces of text; the share that is done grows from row to row.
  std::string text = "user,items\n";
  for (int u = 0; u < 60'000; ++u) text += fmt::format("u{},\"i{},i2\"\n", u, u % 50);
  const auto requests = reader(file("long.csv", text));
  double done = 0;
  int users = 0;
  for (UserRequest request; requests->next(request); ++users) {
    ASSERT_EQ(request.user, fmt::format("u{}", users));
    ASSERT_EQ(request.where, fmt::format("{}:{}", path("long.csv"), users + 2));
    ASSERT_THAT(*request.request.items, ElementsAre(fmt::format("i{}", users % 50), "i2"));
    ASSERT_GE(*requests->done(), done);
    done = *requests->done();
    if (users == 29'999) {
      EXPECT_NEAR(done, 0.5, 0.02);
    }
  }
  EXPECT_EQ(users, 60'000);
  EXPECT_NEAR(done, 1.0, 0.001);
}

TEST_F(BatchRequests, WrongFilesAreRefused) {
  EXPECT_THAT(error_of(path("none.csv")), HasSubstr("none.csv does not exist"));
  EXPECT_THAT(error_of(directory_.path().string()), HasSubstr("is a folder"));
  EXPECT_THAT(error_of(file("users.xlsx", "a")), HasSubstr("does not tell its format"));
  EXPECT_THAT(error_of(file("users.csv.gz", "a")), HasSubstr("does not tell its format"));
  EXPECT_THAT(error_of(file("empty.csv", "")), HasSubstr("is empty"));
  EXPECT_THAT(
      error_of(file("a.csv", "id,age\n1,2\n")),
      AllOf(HasSubstr("has no column 'user'"), HasSubstr("id, age"), HasSubstr("--user-column")));
  EXPECT_THAT(error_of(file("a.csv", "user,age\n1,2\n"), "usr"),
              AllOf(HasSubstr("no column 'usr'"), HasSubstr("did you mean 'user'?")));
  EXPECT_THAT(error_of(file("a.csv", "user,age\n1,2\n3\n")),
              AllOf(HasSubstr("a.csv:3"), HasSubstr("1 fields")));
  EXPECT_THAT(error_of(file("a.csv", "user,age\n1,2\n,4\n")),
              AllOf(HasSubstr("a.csv:3"), HasSubstr("the user is blank")));
  EXPECT_THAT(error_of(file("a.csv", "user,age\n1,2\n\"x,4\n")), HasSubstr("a.csv:3"));
  EXPECT_THAT(error_of(file("a.txt", "u1\nu\xff\n")), HasSubstr("a.txt:2"));
  EXPECT_THAT(error_of(file("a.jsonl", "{\"user\": 1}\n{\"user\": 2\n")),
              AllOf(HasSubstr("a.jsonl:2: the request is not valid JSON (at byte 11: syntax error"),
                    HasSubstr("expected {\"user\": ID, \"items\": [...]"),
                    HasSubstr("of which only \"user\" is required"), Not(HasSubstr("line 1"))));
  EXPECT_THAT(error_of(file("a.jsonl", "{\"items\": [1]}\n")),
              AllOf(HasSubstr("a.jsonl:1"), HasSubstr("no field 'user'"),
                    HasSubstr("--user-column"), HasSubstr("expected {\"user\": ID")));
  EXPECT_THAT(error_of(file("a.jsonl", "{\"user\": \" \"}\n")), HasSubstr("the user is blank"));
  EXPECT_THAT(error_of(file("a.jsonl", "{\"user\": 1.5}\n")), HasSubstr("user is 1.5"));
  EXPECT_THAT(error_of(file("a.jsonl", "{\"user\": 1, \"item\": [2]}\n")),
              HasSubstr("did you mean 'items'?"));
  EXPECT_THAT(error_of(file("a.parquet", "text")), HasSubstr("a.parquet"));
  write("lists.parquet", {{"user", data::lists({{1}, {2}})}});
  EXPECT_THAT(error_of(path("lists.parquet")), HasSubstr("column user holds lists"));
  EXPECT_THROW(table_format("-", ""), UsageError);
  EXPECT_THROW(table_format("a.csv", "excel"), UsageError);
  EXPECT_EQ(table_format("a.csv", "lines"), TableFormat::lines);
  EXPECT_THROW(open_requests("-", TableFormat::parquet, {}), UsageError);
}

TEST_F(BatchRequests, AnotherDelimiterIsNamedAndTaken) {
  const std::string rows = "user;items\nu1;3,4\n";
  EXPECT_THAT(error_of(file("a.csv", rows)),
              AllOf(HasSubstr("a.csv: its first line, 'user;items', seems to be separated by"),
                    HasSubstr("semicolons, ';'"), HasSubstr("give --delimiter")));
  EXPECT_THAT(error_of(file("b.csv", "user\titems\nu1\t3\n")), HasSubstr("tabs, '\\t'"));
  EXPECT_THAT(error_of(file("c.csv", "user|items\nu1|3\n")), HasSubstr("bars, '|'"));
  EXPECT_THAT(error_of(file("d.tsv", "user,items\nu1,3\n")), HasSubstr("commas, ','"));
  UserRequest request;
  for (const auto& [name, delimiter] :
       {std::pair("a.csv", ";"), {"b.csv", "\\t"}, {"c.csv", "|"}}) {
    const auto found = open_requests(path(name), TableFormat::csv, {.delimiter = delimiter});
    ASSERT_TRUE(found->next(request)) << name;
    EXPECT_EQ(request.user, "u1");
    EXPECT_EQ(request.request.items->front(), "3");
  }
  for (const auto& [format, delimiter] :
       {std::pair(TableFormat::jsonl, ";"), {TableFormat::csv, ";;;"}, {TableFormat::csv, "\""}}) {
    EXPECT_THROW(open_requests(path("a.csv"), format, {.delimiter = delimiter}), UsageError);
  }
  const auto dataset = data::MemoryDataset::of_lengths({9});
  EXPECT_THROW(read_item_list(file("items.csv", "item;price\n1;2\n"), dataset), DataError);
}

TEST(BatchProgressTest, CountsAnswersAndNotWhatWasRead) {
  BatchProgress progress;
  EXPECT_EQ(progress.text(2, 1), "0 users, 0 users/s");
  progress.read(4096, 0.5);
  EXPECT_EQ(progress.text(2, 1), "0 users, 0 users/s, 0 %");
  progress.answered(1000);
  progress.answered(1048);
  EXPECT_EQ(progress.text(4, 1), "2.05 k users, 512 users/s, 25 %, 12.0 s left");
  // Those that an earlier batch answered are done, and say nothing about the rate.
  progress.done_before(4096);
  EXPECT_EQ(progress.text(4, 1), "6.14 k users, 512 users/s, 75 %, 4.0 s left");
  BatchProgress one_of_two;
  one_of_two.read(1000, 1.0);
  one_of_two.answered(250);
  EXPECT_EQ(one_of_two.text(5, 2), "500 users, 100 users/s, 50 %, 5.0 s left");
  BatchProgress standard_input;
  standard_input.read(10, std::nullopt);
  standard_input.answered(10);
  EXPECT_EQ(standard_input.text(1, 1), "10 users, 10 users/s");
}

TEST_F(BatchRequests, ItemListsHaveEachItemOnce) {
  const auto dataset = data::MemoryDataset::of_lengths({9});
  for (const std::string& list :
       {file("items.txt", "5\n2\n77\n5\n"), file("items.csv", "n,item\n1,5\n1,2\n1,77\n1,5\n"),
        file("items.jsonl", "{\"item\": 5}\n{\"item\": \"2\"}\n{\"item\": 77}\n{\"item\": 5}\n")}) {
    const ItemList items = read_item_list(list, dataset);
    EXPECT_THAT(items.items, ElementsAre(2, 5)) << list;
    EXPECT_EQ(items.unknown, 1);
    EXPECT_EQ(items.first_unknown, "77");
  }
  EXPECT_THAT(all_but(dataset, {1, 2, 5, 9}), ElementsAre(3, 4, 6, 7, 8));
  EXPECT_THROW(read_item_list(file("wrong.csv", "a,b\n1,2\n"), dataset), DataError);
  EXPECT_THROW(read_item_list(file("wrong.jsonl", "[1]\n"), dataset), DataError);
}

}  // namespace
}  // namespace seqfuse::serving::batch_requests_test
