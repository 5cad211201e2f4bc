#include "data/read/field_values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

namespace seqfuse::data {
namespace {

constexpr std::array<std::pair<std::string_view, bool>, 8> kFlags = {{{"true", true},
                                                                      {"false", false},
                                                                      {"t", true},
                                                                      {"f", false},
                                                                      {"yes", true},
                                                                      {"no", false},
                                                                      {"y", true},
                                                                      {"n", false}}};

// The number that eight characters spell, if all are digits. Combines digits into pairs, fours,
// eight.
std::optional<uint64_t> eight_digits(const char* text) {
  uint64_t word;
  std::memcpy(&word, text, 8);
  word -= 0x3030303030303030;
  if (((word | (word + 0x7676767676767676)) & 0x8080808080808080) != 0) return std::nullopt;
  word = (word * 10 + (word >> 8)) & 0x00FF00FF00FF00FF;
  word = (word * 100 + (word >> 16)) & 0x0000FFFF0000FFFF;
  return (word * 10000 + (word >> 32)) & 0xFFFFFFFF;
}

}  // namespace

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

std::optional<int64_t> parse_canonical_int64(std::string_view text) {
  const bool negative = text.starts_with('-');
  const std::string_view number = text.substr(negative ? 1 : 0);
  if (number.empty() || number.size() > 19) return std::nullopt;
  if (number[0] == '0' && (number.size() > 1 || negative)) return std::nullopt;
  uint64_t value = 0;
  std::string_view rest = number;
  if (rest.size() >= 8) {
    const auto eight = eight_digits(rest.data());
    if (!eight) return std::nullopt;
    value = *eight;
    rest.remove_prefix(8);
  }
  for (const char c : rest) {
    const auto digit = static_cast<unsigned>(c - '0');
    if (digit > 9) return std::nullopt;
    value = value * 10 + digit;
  }
  if (value > uint64_t{INT64_MAX} + (negative ? 1 : 0)) return std::nullopt;
  return static_cast<int64_t>(negative ? ~value + 1 : value);
}

std::optional<double> parse_double(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<bool> parse_long_flag(std::string_view text) {
  text = trim(text);
  if (const auto number = parse_double(text)) return *number != 0;
  for (const auto& [word, value] : kFlags) {
    if (equal_ignoring_case(text, word)) return value;
  }
  return std::nullopt;
}

}  // namespace seqfuse::data
