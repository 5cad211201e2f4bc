// Parses fields of text: numbers and flags.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace seqfuse::data {

// Without spaces and tabs at both ends.
inline std::string_view trim(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// Equal except for the case of ASCII letters.
bool equal_ignoring_case(std::string_view a, std::string_view b);

// An int64 written exactly as it would be printed ("-12", "0", "345", but not "007", "+1", "1.0").
std::optional<int64_t> parse_canonical_int64(std::string_view text);

// A decimal number, or nothing unless the whole text is one.
std::optional<double> parse_double(std::string_view text);

// A number (0 is no, any other yes) or true, false, t, f, yes, no, y, n in any case.
std::optional<bool> parse_long_flag(std::string_view text);
inline std::optional<bool> parse_flag(std::string_view text) {
  if (text.size() == 1 && text[0] >= '0' && text[0] <= '9') return text[0] != '0';
  return parse_long_flag(text);
}

}  // namespace seqfuse::data
