// A request for recommendations as users write it: ids, actions and times are text, as in the
// dataset's source.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace seqfuse::data {
class TimeFormat;
}

namespace seqfuse::serving {

using Texts = std::vector<std::string>;

struct Request {
  std::optional<std::string> user;                           // of the dataset; otherwise a history:
  std::optional<Texts> items;                                // oldest first
  std::optional<Texts> actions, timestamps;                  // one per item
  std::vector<std::pair<std::string, std::string>> context;  // features and their values
  std::optional<std::string> request_time;
  std::shared_ptr<const data::TimeFormat> time_format;  // of all times; null: numbers or ISO 8601
  std::optional<Texts> candidates;                      // ranking only
};

// "a, b,c" as {"a", "b", "c"}; "" as {""}.
Texts split_list(std::string_view text);

// {"items": [...], "actions": [...], "timestamps": [...], "request_time": T, "candidates": [...],
// "context": {"feature": "value"}}; only items is required. Numbers are taken as their text. Throws
// UsageError naming the wrong field.
Request request_from_json(std::string_view text);
// The same with the user in this field, which is required. Without items, it is a user of the data set.
Request request_from_json_line(std::string_view text, const std::string& user_field);

// Combines the parts of a request from flags and from JSON. Throws UsageError if both have a field.
Request merge(const Request& flags, Request json);

}  // namespace seqfuse::serving
