#include "data/read/times.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <string>

#include "data/read/field_values.h"

namespace seqfuse::data {
namespace {

constexpr int kDecimals = 9;  // of a fraction
constexpr int64_t kMostDigits = 20;

bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string_view take_digits(std::string_view& text) {
  const size_t count = static_cast<size_t>(
      std::find_if_not(text.begin(), text.end(), is_ascii_digit) - text.begin());
  const std::string_view digits = text.substr(0, count);
  text.remove_prefix(count);
  return digits;
}

// The first count digits, with zeros for missing ones, as a number.
uint64_t leading_digits(std::string_view digits, int count) {
  uint64_t value = 0;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    value = value * 10 + (i < digits.size() ? static_cast<uint64_t>(digits[i] - '0') : 0);
  }
  return value;
}

std::optional<Time> to_time(__int128 value, int64_t fraction) {
  if (value < INT64_MIN || value > INT64_MAX) return std::nullopt;
  return Time{static_cast<int64_t>(value), static_cast<uint32_t>(fraction)};
}

// "-12.5", ".5", "1.7e9": digit by digit, because a double is not precise enough for both parts.
std::optional<Time> parse_decimal(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  std::string digits(take_digits(text));
  auto point = static_cast<int64_t>(digits.size());  // how many of them are before the point
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    digits += take_digits(text);
  }
  if (digits.empty()) return std::nullopt;
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    if (text.starts_with('+') && text.size() > 1 && is_ascii_digit(text[1])) text.remove_prefix(1);
    int exponent = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), exponent);
    if (error != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    point += exponent;
  }
  if (!text.empty()) return std::nullopt;
  const size_t zeros = std::min(digits.find_first_not_of('0'), digits.size());
  digits.erase(0, zeros);
  point -= static_cast<int64_t>(zeros);
  if (digits.empty()) return Time{};
  if (point >= kMostDigits) return std::nullopt;
  if (point < -kDecimals) {  // below the last decimal that counts
    digits = "0000000001";
    point = 0;
  } else if (point < 0) {
    digits.insert(0, static_cast<size_t>(-point), '0');
    point = 0;
  }
  const __int128 whole = leading_digits(digits, static_cast<int>(point));
  const std::string_view decimals =
      std::string_view(digits).substr(std::min(static_cast<size_t>(point), digits.size()));
  const auto fraction = static_cast<int64_t>(leading_digits(decimals, kDecimals));
  if (!negative) return to_time(whole, fraction);
  // Rounded down: away from zero.
  const bool more = decimals.size() > kDecimals &&
                    decimals.find_first_not_of('0', kDecimals) != std::string_view::npos;
  const int64_t below = fraction + (more ? 1 : 0);
  return below == 0 ? to_time(-whole, 0) : to_time(-whole - 1, Time::kFractions - below);
}

// Removes count digits from the start of text; -1 if it does not begin with them.
int take_number(std::string_view& text, size_t count) {
  if (text.size() < count ||
      !std::all_of(text.begin(), text.begin() + static_cast<int64_t>(count), is_ascii_digit)) {
    return -1;
  }
  const auto value = static_cast<int>(leading_digits(text, static_cast<int>(count)));
  text.remove_prefix(count);
  return value;
}

bool take(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::optional<Time> parse_time_number(std::string_view text) {
  text = trim(text);
  if (const auto number = parse_canonical_int64(text)) return Time{*number, 0};
  return parse_decimal(text);
}

std::optional<int> parse_utc_offset(std::string_view text) {
  text = trim(text);
  if (text.empty() || text == "Z" || text == "z" || text == "UTC") return 0;
  const int sign = text[0] == '+' ? 1 : text[0] == '-' ? -1 : 0;
  if (sign == 0) return std::nullopt;
  text.remove_prefix(1);
  const int hours = take_number(text, 2);
  if (text.empty() && hours >= 0 && hours < 24) return sign * hours * 3600;
  take(text, ':');
  const int minutes = take_number(text, 2);
  if (!text.empty() || hours < 0 || hours > 23 || minutes < 0 || minutes > 59) return std::nullopt;
  return sign * (hours * 3600 + minutes * 60);
}

std::optional<Time> unix_time(int64_t seconds, int64_t nanoseconds, int64_t units_per_second) {
  const __int128 scaled = static_cast<__int128>(nanoseconds) * units_per_second;
  return to_time(static_cast<__int128>(seconds) * units_per_second +
                     static_cast<int64_t>(scaled / Time::kFractions),
                 static_cast<int64_t>(scaled % Time::kFractions));
}

std::optional<std::string> utc_text(int64_t seconds) {
  constexpr int64_t kDay = 86400, kYear0 = -62167219200, kYear10000 = 253402300800;
  if (seconds < kYear0 || seconds >= kYear10000) return std::nullopt;
  const int64_t days = seconds / kDay - (seconds % kDay < 0 ? 1 : 0), rest = seconds - days * kDay;
  const std::chrono::year_month_day date{std::chrono::sys_days(std::chrono::days(days))};
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     rest / 3600, rest / 60 % 60, rest % 60);
}

std::optional<Time> parse_iso8601(std::string_view text, int64_t units_per_second) {
  text = trim(text);
  const int year = take_number(text, 4);
  if (!take(text, '-')) return std::nullopt;
  const int month = take_number(text, 2);
  if (!take(text, '-')) return std::nullopt;
  const int day = take_number(text, 2);
  if (year < 0 || month < 0 || day < 0) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year{year},
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return std::nullopt;
  int64_t seconds = int64_t{std::chrono::sys_days(date).time_since_epoch().count()} * 86400;
  int64_t nanoseconds = 0;
  if (!text.empty()) {
    if (!take(text, 'T') && !take(text, 't') && !take(text, ' ')) return std::nullopt;
    const int h = take_number(text, 2);
    if (!take(text, ':')) return std::nullopt;
    const int m = take_number(text, 2);
    const bool has_seconds = take(text, ':');
    const int s = has_seconds ? take_number(text, 2) : 0;
    if (h < 0 || h > 23 || m < 0 || m > 59 || s < 0 || s > 60) return std::nullopt;
    if (has_seconds && (take(text, '.') || take(text, ','))) {
      nanoseconds = static_cast<int64_t>(leading_digits(take_digits(text), kDecimals));
    }
    const auto offset = parse_utc_offset(text);
    if (!offset) return std::nullopt;
    seconds += h * 3600 + m * 60 + s - *offset;
  }
  return unix_time(seconds, nanoseconds, units_per_second);
}

}  // namespace seqfuse::data
