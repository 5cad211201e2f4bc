// Exact points in time: an integer in some unit and a fraction, so that events within one second
// keep their order although the dataset stores whole units.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace seqfuse::data {

// The point value + fraction / kFractions. Ordered by time; a blank is not a valid time.
struct Time {
  static constexpr uint32_t kFractions = 1'000'000'000;
  static constexpr uint32_t kBlank = UINT32_MAX;

  int64_t value = 0;      // rounded down
  uint32_t fraction = 0;  // below kFractions; kBlank: the field was blank

  auto operator<=>(const Time&) const = default;
};

// An integer or a decimal number, rounded down to nine decimals. Nothing if the text is not a
// number or is outside int64.
std::optional<Time> parse_time_number(std::string_view text);

// ISO 8601 as units since 1970: a date "2024-05-06", which may be followed by 'T' or a space,
// "07:08[:09[.123]]" and the offset from UTC: Z, UTC, +05:30, -0800 or +01; without one it is UTC.
// Nothing if the text is not such a time.
std::optional<Time> parse_iso8601(std::string_view text, int64_t units_per_second = 1);

// An offset from UTC, as in ISO 8601, in seconds east of it; "" is UTC. Nothing if it is none.
std::optional<int> parse_utc_offset(std::string_view text);

// seconds since 1970 + nanoseconds (below 10^9) in units. Nothing if that is outside int64.
std::optional<Time> unix_time(int64_t seconds, int64_t nanoseconds, int64_t units_per_second);

// "2024-03-01 12:00:00 UTC", of seconds since 1970. Nothing for years beyond four digits.
std::optional<std::string> utc_text(int64_t seconds);

}  // namespace seqfuse::data
