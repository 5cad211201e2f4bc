#include "text/json_fields.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace seqfuse::text {
namespace {

constexpr int kDeepestSequence = 8;
constexpr size_t kShownCharacters = 60;

std::string shown(const nlohmann::json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kShownCharacters) text = text.substr(0, kShownCharacters) + "…";
  return text;
}

}  // namespace

void JsonField::fail(const std::string& expected) const {
  throw_error<DataError>("{} is {}, expected {}", path, shown(value), expected);
}

JsonField JsonField::member(const std::string& name) const {
  if (!value.is_object()) fail("an object");
  const std::string inner = path.empty() ? name : path + "." + name;
  const auto found = value.find(name);
  SEQFUSE_CHECK_AS(DataError, found != value.end(), "{} is missing", inner);
  return {*found, inner};
}

bool JsonField::has(const std::string& name) const {
  if (!value.is_object()) fail("an object");
  const auto found = value.find(name);
  return found != value.end() && !found->is_null();
}

JsonField JsonField::element(size_t index) const {
  return {value.at(index), fmt::format("{}[{}]", path, index)};
}

size_t JsonField::array_size() const {
  if (!value.is_array()) fail("an array");
  return value.size();
}

std::string JsonField::text() const {
  if (!value.is_string()) fail("a string");
  return value.get<std::string>();
}

bool JsonField::boolean() const {
  if (!value.is_boolean()) fail("true or false");
  return value.get<bool>();
}

int32_t JsonField::token_id() const {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > kLargestTokenId) {
    fail(fmt::format("an id from 0 to {}", kLargestTokenId));
  }
  return value.get<int32_t>();
}

size_t JsonField::count() const {
  if (!value.is_number_unsigned()) fail("a count");
  return value.get<size_t>();
}

bool JsonField::boolean_or(const std::string& name, bool otherwise) const {
  return has(name) ? member(name).boolean() : otherwise;
}

std::string JsonField::text_or(const std::string& name, const std::string& otherwise) const {
  return has(name) ? member(name).text() : otherwise;
}

void check_nesting(const JsonField& sequence, int depth) {
  SEQFUSE_CHECK_AS(DataError, depth < kDeepestSequence,
                   "{}: sequences are nested {} deep, at most {} levels are supported",
                   sequence.path, depth + 1, kDeepestSequence);
}

}  // namespace seqfuse::text
