// Rows of JSON lines, one object each, as text fields, so that the same rules apply to them as to
// delimited text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace seqfuse::data {

// A row's members in their order, with members of inner objects as "outer.inner" and null as "".
// Lists have the value "[...]". Empty if the row is not a JSON object.
std::vector<std::pair<std::string, std::string>> json_members(std::string_view row);

class JsonRow {
 public:
  // names: the members to read, such as "item" or "item.id". Rows without one of the first
  // `required` are malformed.
  JsonRow(std::vector<std::string> names, size_t required);

  // Reads a row. Returns "", or why it is malformed.
  std::string parse(std::string_view row);
  // The row's value per name: strings without escapes, numbers as written, true or false; "" for null
  // and for members that are not there.
  std::span<const std::string_view> fields() const { return fields_; }

  // Per name: whether some row had it.
  const std::vector<bool>& seen() const { return seen_; }

 private:
  std::vector<std::string> names_;
  size_t required_;
  std::vector<std::string> values_;
  std::vector<bool> present_, seen_;
  std::vector<std::string_view> fields_;
};

}  // namespace seqfuse::data
