#include "serving/request.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/names.h"
#include "data/read/field_values.h"

namespace seqfuse::serving {
namespace {

using nlohmann::json;

// user_field: as of read_fields().
std::string shape(const std::string& user_field) {
  return fmt::format(
      "{{{}\"items\": [...], \"actions\": [...], \"timestamps\": [...], \"request_time\": T, "
      "\"candidates\": [...], \"context\": {{\"feature\": \"value\"}}}}{}",
      user_field.empty() ? "" : fmt::format("\"{}\": ID, ", user_field),
      user_field.empty() ? "" : fmt::format(", of which only \"{}\" is required", user_field));
}

std::string shown(const json& value) {
  constexpr size_t kLongest = 60;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

// Fractions are refused as ids: 1.0 could mean "1" or "1.0".
std::string text_of(const json& value, const std::string& field, bool may_be_fraction) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer() || (value.is_number() && may_be_fraction)) return value.dump();
  throw_error<UsageError>("{} is {}: expected {}", field, shown(value),
                          may_be_fraction ? "a string or a number" : "a string or an integer");
}

Texts texts_of(const json& value, const std::string& field, bool may_be_fractions) {
  if (!value.is_array()) {
    throw_error<UsageError>("{} is {}: expected a list, such as [\"a\", \"b\"]", field,
                            shown(value));
  }
  Texts texts;
  for (const json& entry : value) {
    texts.push_back(text_of(entry, fmt::format("{}[{}]", field, texts.size()), may_be_fractions));
  }
  return texts;
}

template <class T>
void merge(const char* flag, const char* name, const std::optional<T>& from_flag,
           std::optional<T>& to) {
  if (!from_flag) return;
  if (to) {
    throw_error<UsageError>("{} is given twice, by {} and as JSON: give it once", name, flag);
  }
  to = from_flag;
}

// What is wrong with the text, and at which byte. The parser's own count of lines is left out: for a
// line of a file it would be wrong.
std::string problem_of(const json::exception& error) {
  const std::string_view what = error.what();
  const size_t begin = what.find("syntax error");
  const auto* parse_error = dynamic_cast<const json::parse_error*>(&error);
  if (parse_error == nullptr || begin == std::string_view::npos) return std::string(what);
  return fmt::format("at byte {}: {}", parse_error->byte, what.substr(begin));
}

json parse_object(std::string_view text, const std::string& user_field) {
  if (data::trim(text).empty()) {
    throw_error<UsageError>("the request is empty: expected JSON, {}", shape(user_field));
  }
  json object;
  try {
    object = json::parse(text);
  } catch (const json::exception& error) {
    throw_error<UsageError>("the request is not valid JSON ({}): expected {}", problem_of(error),
                            shape(user_field));
  }
  if (!object.is_object()) {
    throw_error<UsageError>("the request is of type {}: expected an object, {}", object.type_name(),
                            shape(user_field));
  }
  return object;
}

// user_field: the field of the user, or "" where there is none.
Request read_fields(const json& object, const std::string& user_field) {
  Request request;
  for (const auto& [name, value] : object.items()) {
    if (!user_field.empty() && name == user_field) {
      request.user = text_of(value, name, false);
    } else if (name == "items") {
      request.items = texts_of(value, name, false);
    } else if (name == "actions") {
      request.actions = texts_of(value, name, true);
    } else if (name == "timestamps") {
      request.timestamps = texts_of(value, name, true);
    } else if (name == "candidates") {
      request.candidates = texts_of(value, name, false);
    } else if (name == "request_time") {
      request.request_time = text_of(value, name, true);
    } else if (name == "context") {
      if (!value.is_object()) {
        throw_error<UsageError>(
            "context is {}: expected an object, such as {{\"country\": \"de\"}}", shown(value));
      }
      for (const auto& [feature, entry] : value.items()) {
        request.context.emplace_back(feature, text_of(entry, "context." + feature, true));
      }
    } else {
      static const Texts kNames = {"items",        "actions",    "timestamps",
                                   "request_time", "candidates", "context"};
      throw_error<UsageError>("the request has an unknown field '{}'{}: expected {}", name,
                              did_you_mean(name, kNames), shape(user_field));
    }
  }
  return request;
}

}  // namespace

Texts split_list(std::string_view text) {
  Texts texts;
  for (;;) {
    const size_t comma = text.find(',');
    texts.emplace_back(data::trim(text.substr(0, comma)));
    if (comma == std::string_view::npos) return texts;
    text.remove_prefix(comma + 1);
  }
}

Request request_from_json(std::string_view text) {
  Request request = read_fields(parse_object(text, ""), "");
  if (!request.items) throw_error<UsageError>("the request has no items: expected {}", shape(""));
  return request;
}

Request request_from_json_line(std::string_view text, const std::string& user_field) {
  Request request = read_fields(parse_object(text, user_field), user_field);
  if (!request.user) {
    throw_error<UsageError>(
        "the request has no field '{0}', which says who it is for{1}: expected {2}", user_field,
        user_field == "user" ? " (--user-column names another field)" : "", shape(user_field));
  }
  if (data::trim(*request.user).empty()) throw_error<UsageError>("the user is blank");
  return request;
}

Request merge(const Request& flags, Request json) {
  merge("--actions", "actions", flags.actions, json.actions);
  merge("--timestamps", "timestamps", flags.timestamps, json.timestamps);
  merge("--request-time", "request_time", flags.request_time, json.request_time);
  merge("--candidates", "candidates", flags.candidates, json.candidates);
  json.time_format = flags.time_format;
  json.context.insert(json.context.end(), flags.context.begin(), flags.context.end());
  return json;
}

}  // namespace seqfuse::serving
