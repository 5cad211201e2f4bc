// Logs in JSON lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/random.h"
#include "data/read/json_rows.h"
#include "tests/unit/preprocess_run.h"

namespace seqfuse::data::data_json_lines_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

TEST(JsonRow, ValuesAsText) {
  JsonRow row({"user", "item", "n", "x", "flag", "inner.id", "gone"}, 2);
  EXPECT_EQ(row.parse(R"({"item":"a\u00e9\n","x":12.50,"user":-7,"n":123456789012345678901,)"
                      R"("flag":true,"inner":{"more":{"id":1},"id":null},"other":[{"user":5}]})"),
            "");
  EXPECT_THAT(row.fields(),
              ElementsAre("-7", "a\xC3\xA9\n", "123456789012345678901", "12.50", "true", "", ""));
  EXPECT_THAT(row.seen(), ElementsAre(true, true, true, true, true, true, false));
  EXPECT_EQ(row.parse(R"({"user":1,"item":2,"inner.id":"dotted"})"), "");
  EXPECT_THAT(row.fields(), ElementsAre("1", "2", "", "", "", "dotted", ""))
      << "nothing is left of the row before";
}

TEST(JsonRow, MalformedRows) {
  JsonRow row({"user", "item"}, 2);
  EXPECT_THAT(
      row.parse(R"({"user":1,"itme":2})"),
      AllOf(HasSubstr("no 'item' (did you mean 'itme'?)"), HasSubstr("it has: user, itme")));
  EXPECT_THAT(row.parse(R"({"user":1,"item":[2]})"), HasSubstr("column item is a list"));
  EXPECT_THAT(row.parse(R"({"user":1,"item":{"id":2}})"),
              AllOf(HasSubstr("no 'item'"), HasSubstr("user, item.id")));
  EXPECT_THAT(row.parse(R"({"user":1,"item":2)"), HasSubstr("not valid JSON at its character"));
  EXPECT_THAT(row.parse(R"({"user":1,"item":NaN})"), HasSubstr("not valid JSON"));
  EXPECT_THAT(row.parse(R"({"user":1,"item":2} {})"), HasSubstr("not valid JSON"));
  EXPECT_THAT(row.parse(R"([{"user":1}])"), HasSubstr("the row is a list"));
  EXPECT_THAT(row.parse("17"), HasSubstr("expected an object"));
  EXPECT_EQ(row.parse(R"({"user":1,"item":2})"), "") << "a bad row does not disturb the next";
}

TEST(JsonRow, DeepNestingIsNoProblem) {
  JsonRow row({"user"}, 1);
  const int depth = 100000;
  std::string text =
      R"({"x":)" + std::string(depth, '[') + std::string(depth, ']') + R"(,"user":3})";
  EXPECT_EQ(row.parse(text), "");
  EXPECT_THAT(row.fields(), ElementsAre("3"));
  text.clear();
  for (int i = 0; i < 1000; ++i) text += R"({"a":)";
  text += "1" + std::string(1000, '}');
  EXPECT_THAT(row.parse(text), HasSubstr("no 'user'"));
}

// Accepts exactly the rows that a JSON parser accepts as an object with these members.
TEST(JsonRow, DamagedRows) {
  const std::string whole = R"({"user":"u\u0041","item":{"id":-1.5e3},"list":[1,{"user":[]}]})";
  Random random(5);
  JsonRow row({"user", "item.id"}, 2);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = whole;
    for (int64_t edits = random.below(3); edits >= 0; --edits) {
      const auto at = static_cast<size_t>(random.below(text.size()));
      const char c = "{}[]\",:\\0e.-\xC3u "[random.below(15)];
      random.below(2) == 0 ? text.erase(at, 1) : text.insert(at, 1, c);
    }
    const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    const bool expected = json.is_object() && json.contains("user") &&
                          json["user"].is_primitive() && json.contains("item") &&
                          json["item"].is_object() && json["item"].contains("id") &&
                          json["item"]["id"].is_primitive();
    if (text.find(".id") == std::string::npos) {  // "item.id" as one name is also right
      EXPECT_EQ(row.parse(text).empty(), expected) << text;
    }
    accepted += expected ? 1 : 0;
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_LT(accepted, 19000);
}

TEST(JsonRow, Members) {
  EXPECT_THAT(json_members(R"({"a":1,"b":{"c":"x","d":[1]},"e":null})"),
              ElementsAre(Pair("a", "1"), Pair("b.c", "x"), Pair("b.d", "[...]"), Pair("e", "")));
  EXPECT_THAT(json_members("{"), IsEmpty());
}

class JsonLinesTest : public PreprocessTest {
 protected:
  JsonLinesTest() {
    options_.force = true;
    options_.ingest.input = path("log.jsonl");
  }
};

TEST_F(JsonLinesTest, LogWithActionsAndContext) {
  csv_.user_column = "who.id";
  csv_.action_columns = {"kind"};
  csv_.action_rule = ActionRule::values;
  csv_.context = {{"country", "who.country"}};
  write("log.jsonl",
        "{\"who\":{\"id\":\"u,1\",\"country\":\"DE\"},\"item\":7,\"time\":5,\"kind\":\"buy\"}\r\n"
        "\n"
        "  \n"
        "{\"time\":\"1970-01-01T00:00:04Z\",\"kind\":\"view\",\"item\":\"a\\\"b\",\"who\":{\"id\":"
        "\"u,1\"}}");
  EXPECT_THAT(refused(csv_), HasSubstr("numbers without a unit")) << "the rules of CSV apply";
  write("log.jsonl",
        "{\"who\":{\"id\":\"u,1\",\"country\":\"DE\"},\"item\":7,\"time\":5,\"kind\":\"buy\"}\r\n"
        "\n"
        "  \n"
        "{\"time\":4.5,\"kind\":\"view\",\"item\":\"a\\\"b\",\"who\":{\"id\":\"u,1\"}}");
  const auto dataset = run(csv_);
  EXPECT_EQ(dataset->user_id(0), "u,1");
  EXPECT_THAT(items(*dataset, 0), ElementsAre("a\"b", "7"));
  EXPECT_THAT(dataset->user(0).timestamps, ElementsAre(4, 5));
  EXPECT_THAT(dataset->manifest().action_names, ElementsAre("buy", "view"));
  EXPECT_THAT(dataset->user(0).actions, ElementsAre(1, 0));
  EXPECT_EQ(dataset->context_value(0, dataset->context(0, 0)), "DE");
}

TEST_F(JsonLinesTest, ErrorsNameFileAndLine) {
  write("log.jsonl", "{\"user\":1,\"item\":2,\"time\":3}\n{\"user\":1,\"item\":2}\n");
  EXPECT_THAT(refused(csv_), HasSubstr("log.jsonl:2: the row has no 'time'; it has: user, item"));
  write("log.jsonl", "{\"user\":1,\"item\":2,\"time\":3}\n{\"user\":1,\"item\":,\"time\":3}\n");
  EXPECT_THAT(refused(csv_), HasSubstr("log.jsonl:2: the row is not valid JSON"));
  write("log.jsonl", "{\"user\":1,\"item\":2,\"time\":null}\n");
  EXPECT_THAT(refused(csv_), HasSubstr("log.jsonl:1: column time is blank"));
  write("log.jsonl", "[\n{\"user\":1,\"item\":2,\"time\":3}\n]\n");
  EXPECT_THAT(refused(csv_), AllOf(HasSubstr("log.jsonl begins with '[', a list"),
                                   HasSubstr("jq -c '.[]' log.jsonl > rows.jsonl")));
  write("log.jsonl", "{\"user\":1,\"item\":2,\"time\":3}\n{\"user\":\"\xE9\",\"item\":2}\n");
  EXPECT_THAT(refused(csv_), AllOf(HasSubstr("log.jsonl:2:"), HasSubstr("not UTF-8")));
  options_.ingest.on_bad_row = BadRows::skip;
  EXPECT_EQ(run(csv_)->manifest().num_events, 1);
  EXPECT_EQ(result_.bad_rows, 1);
}

TEST_F(JsonLinesTest, AContextColumnThatNoRowHas) {
  csv_.context = {{"city", "city"}};
  write("log.jsonl", "{\"user\":1,\"item\":2,\"time\":3}\n");
  EXPECT_THAT(refused(csv_), HasSubstr("no row of " + path("log.jsonl").string() + " has 'city'"));
  write(
      "log.jsonl",
      "{\"user\":1,\"item\":2,\"time\":3}\n{\"user\":2,\"item\":2,\"time\":3,\"city\":\"Rome\"}\n");
  const auto dataset = run(csv_);
  EXPECT_EQ(dataset->context(0, 0), 0);
  EXPECT_EQ(dataset->context(0, 1), 1);
}

TEST_F(JsonLinesTest, BesideCsvInAFolderWithPartitions) {
  options_.ingest.input = path("in");
  csv_.time_column = "dt";
  write("in/dt=2024-01-02/a.ndjson", "{\"user\":1,\"item\":\"x\"}\n");
  write("in/dt=2024-01-01/b.csv", "item,user\ny,1\n");
  write("in/dt=2024-01-03/c.jsonl", "");
  write("in/schema.json", "{\"fields\": []}");
  EXPECT_THAT(items(*run(csv_), 0), ElementsAre("y", "x"));
  EXPECT_THAT(result_.not_read, ElementsAre("schema.json"));
}

TEST_F(JsonLinesTest, AreRefusedWhereAnotherFormatIsExpected) {
  write("log.jsonl", "{\"user\":1,\"item\":2}\n");
  options_.ingest.kind = InputKind::item_lines;
  csv_.table.columns = {"user", "item"};
  EXPECT_THAT(refused(csv_), HasSubstr("log.jsonl holds JSON lines; expected delimited text"));
}

TEST_F(JsonLinesTest, AnyFileThatStartsWithABraceIsJson) {
  options_.ingest.input = path("reviews.json");
  write("reviews.json", "{\"user\":1,\"item\":\"x\",\"time\":9}\n");
  EXPECT_THAT(items(*run(csv_), 0), ElementsAre("x"));
}

TEST_F(JsonLinesTest, ManyThreadsAndPieces) {
  Random random(2);
  std::string json, csv = "user,item,time\n";
  for (int i = 0; i < 60000; ++i) {
    const auto user = random.below(500), item = random.below(900), time = random.below(100);
    json += fmt::format("{{\"user\": {}, \"item\": \"i{}\", \"time\": {}}}\n", user, item, time);
    csv += fmt::format("{},i{},{}\n", user, item, time);
  }
  write("log.jsonl", json);
  const auto of_json = run(csv_);
  options_.ingest.input = path("in");
  options_.output = path("csv");
  const auto of_csv = run_csv(csv);
  ASSERT_EQ(of_json->manifest().hash, of_csv->manifest().hash);
  for (int64_t row = 0; row < of_csv->num_users(); ++row) {
    EXPECT_EQ(items(*of_json, row), items(*of_csv, row));
  }
}

}  // namespace
}  // namespace seqfuse::data::data_json_lines_test
