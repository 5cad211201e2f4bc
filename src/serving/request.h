// A request for recommendations as people give it: ids, actions and times are text, as they stand
// in the source of the data set.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace seqfuse::serving {

using Texts = std::vector<std::string>;

struct Request {
  std::optional<std::string> user;           // one of the data set, or else a history:
  std::optional<Texts> items;                // oldest first
  std::optional<Texts> actions, timestamps;  // one for each item
  std::vector<std::pair<std::string, std::string>> context;  // features and their values
  std::optional<std::string> request_time;
  std::optional<Texts> candidates;  // of a ranking run
};

// "a, b,c" as {"a", "b", "c"}; "" as {""}.
Texts split_list(std::string_view text);

// {"items": [...], "actions": [...], "timestamps": [...], "request_time": T, "candidates": [...],
// "context": {"feature": "value"}}, of which only items must be there. Numbers stand for their
// text. Throws UsageError naming the field that is wrong.
Request request_from_json(std::string_view text);
// The same with the user in this field, which must be there. Without items it is one of the data set.
Request request_from_json_line(std::string_view text, const std::string& user_field);

// A request of which one part came by flags, the other as JSON. Throws UsageError if a field is in
// both.
Request merge(const Request& flags, Request json);

}  // namespace seqfuse::serving
