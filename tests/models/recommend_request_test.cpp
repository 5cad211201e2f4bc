// Requests as JSON and as flags: parsing and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "serving/action_names.h"
#include "serving/request.h"

namespace seqfuse::serving::recommend_request_test {
namespace {
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::string error_of(const std::string& json) {
  try {
    request_from_json(json);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(RequestJson, HoldsEveryField) {
  const Request request = request_from_json(R"({
      "items": ["a,b", 7, -3, 18446744073709551615], "actions": ["4.5", 4, 4.5, 1e2],
      "timestamps": [10, 11.5, "2024-05-06", -1], "request_time": 20, "candidates": ["x", 5],
      "context": {"country": "de", "age": 30}})");
  EXPECT_FALSE(request.user);
  EXPECT_THAT(*request.items, ElementsAre("a,b", "7", "-3", "18446744073709551615"));
  EXPECT_THAT(*request.actions, ElementsAre("4.5", "4", "4.5", "100.0"));
  EXPECT_THAT(*request.timestamps, ElementsAre("10", "11.5", "2024-05-06", "-1"));
  EXPECT_EQ(request.request_time, "20");
  EXPECT_THAT(*request.candidates, ElementsAre("x", "5"));
  EXPECT_THAT(request.context,
              testing::UnorderedElementsAre(Pair("country", "de"), Pair("age", "30")));
}

TEST(RequestJson, ItemsSuffice) {
  const Request request = request_from_json(" {\"items\": []}\n");
  EXPECT_TRUE(request.items->empty());
  EXPECT_FALSE(request.actions || request.timestamps || request.request_time || request.candidates);
}

TEST(RequestJson, WrongShapesAreNamed) {
  for (const auto& [json, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "the request is empty"},
           {" \t", "the request is empty"},
           {"{\"items\": [1}", "not valid JSON"},
           {"\"\xff\"", "not valid JSON"},
           {"[1, 2]", "the request is of type array: expected an object"},
           {"null", "the request is of type null"},
           {"{}", "has no items"},
           {R"({"actions": [1]})", "has no items"},
           {R"({"items": "1,2"})", "items is \"1,2\": expected a list"},
           {R"({"items": null})", "items is null: expected a list"},
           {R"({"items": [1, [2]]})", "items[1] is [2]: expected a string or an integer"},
           {R"({"items": [1.0]})", "items[0] is 1.0: expected a string or an integer"},
           {R"({"items": [1], "candidates": [true]})", "candidates[0] is true"},
           {R"({"items": [1], "actions": {"1": 2}})", "actions is {\"1\":2}: expected a list"},
           {R"({"items": [1], "timestamps": [null]})",
            "timestamps[0] is null: expected a string or a number"},
           {R"({"items": [1], "request_time": [5]})", "request_time is [5]"},
           {R"({"items": [1], "context": ["de"]})", "context is [\"de\"]: expected an object"},
           {R"({"items": [1], "context": {"a": {}}})", "context.a is {}"},
           {R"({"items": [1], "action": [1]})", "'action' (did you mean 'actions'?)"},
           {R"({"items": [1], "top_k": 5})", "unknown field 'top_k'"}}) {
    EXPECT_THAT(error_of(json), HasSubstr(message)) << json;
  }
}

TEST(RequestJson, LongValuesAreCutInMessages) {
  const std::string error = error_of(R"({"items": ")" + std::string(1000, 'x') + R"("})");
  EXPECT_LT(error.size(), 200U);
  EXPECT_THAT(error, HasSubstr("xxx...: expected a list"));
}

TEST(RequestFlags, ListsAreSplitAndTrimmed) {
  EXPECT_THAT(split_list("a, b ,c"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(split_list(""), ElementsAre(""));
  EXPECT_THAT(split_list("a,,b,"), ElementsAre("a", "", "b", ""));
}

TEST(RequestFlags, FillWhatJsonLeavesOut) {
  const Request flags{
      .context = {{"country", "de"}}, .request_time = "30", .candidates = Texts{"x"}};
  const Request request =
      merge(flags, request_from_json(R"({"items": [1], "context": {"age": "30"}})"));
  EXPECT_THAT(*request.items, ElementsAre("1"));
  EXPECT_EQ(request.request_time, "30");
  EXPECT_THAT(*request.candidates, ElementsAre("x"));
  EXPECT_THAT(request.context, ElementsAre(Pair("age", "30"), Pair("country", "de")));
  EXPECT_THROW(merge(flags, request_from_json(R"({"items": [1], "request_time": 30})")),
               UsageError);
  EXPECT_THROW(
      merge({.actions = Texts{"1"}}, request_from_json(R"({"items": [1], "actions": [1]})")),
      UsageError);
}

data::Manifest manifest_of(data::ActionKind kind, const std::vector<std::string>& names) {
  data::Manifest manifest;
  manifest.dataset_name = "memory";
  manifest.action_kind = kind;
  manifest.action_names = names;
  const auto n = std::ssize(names);
  manifest.num_actions = kind == data::ActionKind::bits ? int64_t{1} << n : n;
  return manifest;
}

std::string error_of(const data::Manifest& manifest, const std::string& action) {
  try {
    find_action(manifest, action);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Actions, ClassesByNameOrAsTheSameNumber) {
  const auto stars = manifest_of(data::ActionKind::classes, {"0.5", "1.0", "1.5", "2.0"});
  EXPECT_EQ(find_action(stars, "0.5"), 0);
  EXPECT_EQ(find_action(stars, "1"), 1);
  EXPECT_EQ(find_action(stars, "1.50"), 2);
  EXPECT_EQ(find_action(stars, "2.0"), 3);
  // 0 and 3 are labels, but if names are numbers, a number is a name.
  EXPECT_THAT(error_of(stars, "0"), HasSubstr("dataset memory has no action '0'"));
  EXPECT_THAT(error_of(stars, "3"), HasSubstr("give one of 0.5, 1.0, 1.5, 2.0"));
  EXPECT_EQ(action_text(stars, 3), "2.0");
}

TEST(Actions, NumbersThatTwoNamesShareAreNone) {
  const auto twice = manifest_of(data::ActionKind::classes, {"4", "4.0", "5"});
  EXPECT_EQ(find_action(twice, "4"), 0);
  EXPECT_EQ(find_action(twice, "4.0"), 1);
  EXPECT_THAT(error_of(twice, "4.00"), HasSubstr("action '4.00'"));
}

TEST(Actions, LabelsWhereNoNameIsANumber) {
  const auto words = manifest_of(data::ActionKind::classes, {"buy", "view"});
  EXPECT_EQ(find_action(words, "view"), 1);
  EXPECT_EQ(find_action(words, "1"), 1);
  EXPECT_THAT(error_of(words, "2"), HasSubstr("give one of buy, view"));
  EXPECT_THAT(error_of(words, "-1"), HasSubstr("action '-1'"));
  EXPECT_THAT(error_of(words, "viwe"), HasSubstr("did you mean 'view'?"));
}

TEST(Actions, BitsAsAMaskOrByName) {
  const auto bits = manifest_of(data::ActionKind::bits, {"click", "like", "a+b"});
  EXPECT_EQ(find_action(bits, "0"), 0);
  EXPECT_EQ(find_action(bits, "5"), 5);
  EXPECT_EQ(find_action(bits, "like"), 2);
  EXPECT_EQ(find_action(bits, "click + like"), 3);
  EXPECT_EQ(find_action(bits, "a+b"), 4);
  EXPECT_THAT(error_of(bits, "8"), HasSubstr("action '8'"));
  EXPECT_THAT(error_of(bits, "click+"), HasSubstr("action 'click+'"));
  EXPECT_THAT(error_of(bits, "click+share"), HasSubstr("click, like, a+b"));
  EXPECT_EQ(action_text(bits, 3), "click+like");
  EXPECT_EQ(action_text(bits, 0), "0");
}

TEST(Actions, NoneAreRefusedWhereADatasetHasNone) {
  EXPECT_THAT(error_of(manifest_of(data::ActionKind::none, {}), "1"), HasSubstr("has no actions"));
}

}  // namespace
}  // namespace seqfuse::serving::recommend_request_test
