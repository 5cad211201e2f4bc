#include "data/read/time_format.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "base/error.h"
#include "data/read/field_values.h"

namespace seqfuse::data {
namespace {

struct Code {
  char letter;
  const char* example;
};
constexpr std::array<Code, 18> kCodes = {{{'Y', "2024"},
                                          {'y', "24"},
                                          {'m', "12"},
                                          {'d', "31"},
                                          {'e', "31"},
                                          {'H', "18"},
                                          {'I', "06"},
                                          {'M', "05"},
                                          {'S', "00"},
                                          {'f', "000"},
                                          {'b', "Dec"},
                                          {'B', "December"},
                                          {'h', "Dec"},
                                          {'a', "Tue"},
                                          {'A', "Tuesday"},
                                          {'p', "PM"},
                                          {'z', "+0000"},
                                          {'%', "%"}}};
constexpr std::array<std::string_view, 12> kMonths = {
    "january", "february", "march",     "april",   "may",      "june",
    "july",    "august",   "september", "october", "november", "december"};
constexpr std::array<std::string_view, 7> kWeekdays = {
    "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_space(char c) {
  return c == ' ' || c == '\t';
}

// The fields of a time while it is read.
struct TimeFields {
  int year = 0, month = 0, day = 0;
  int hour = 0, minute = 0, second = 0;
  int64_t nanoseconds = 0;
  bool afternoon = false, has_half = false;  // of %p
  int offset = 0;                            // seconds east of UTC
};

class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  bool at_end() const { return rest_.empty(); }

  bool literal(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool spaces() {
    if (rest_.empty() || !is_space(rest_[0])) return false;
    while (!rest_.empty() && is_space(rest_[0])) rest_.remove_prefix(1);
    return true;
  }

  // A number of at least `least` and at most `most` digits, within a range.
  bool number(size_t least, size_t most, int low, int high, int& out) {
    size_t count = 0;
    int value = 0;
    for (; count < most && count < rest_.size() && is_digit(rest_[count]); ++count) {
      value = value * 10 + (rest_[count] - '0');
    }
    if (count < least || value < low || value > high) return false;
    rest_.remove_prefix(count);
    out = value;
    return true;
  }

  bool fraction(int64_t& nanoseconds) {
    size_t count = 0;
    nanoseconds = 0;
    for (; count < rest_.size() && is_digit(rest_[count]); ++count) {
      if (count < 9) nanoseconds = nanoseconds * 10 + (rest_[count] - '0');
    }
    for (size_t i = count; i < 9; ++i) nanoseconds *= 10;
    rest_.remove_prefix(count);
    return count > 0;
  }

  // A whole name or its first three letters; index from 0, or -1.
  template <size_t N>
  int name(const std::array<std::string_view, N>& names) {
    for (size_t i = 0; i < N; ++i) {
      for (const std::string_view wanted : {names[i], names[i].substr(0, 3)}) {
        if (!equal_ignoring_case(rest_.substr(0, wanted.size()), wanted)) continue;
        rest_.remove_prefix(wanted.size());
        return static_cast<int>(i);
      }
    }
    return -1;
  }

  bool half_of_day(bool& afternoon) {
    const std::string_view half = rest_.substr(0, 2);
    afternoon = equal_ignoring_case(half, "pm");
    if (!afternoon && !equal_ignoring_case(half, "am")) return false;
    rest_.remove_prefix(2);
    return true;
  }

  bool offset(int& seconds) {
    const size_t end = std::min(rest_.find_first_of(" \t)"), rest_.size());
    const auto found = end == 0 ? std::nullopt : parse_utc_offset(rest_.substr(0, end));
    if (!found) return false;
    rest_.remove_prefix(end);
    seconds = *found;
    return true;
  }

 private:
  std::string_view rest_;
};

bool read_field(char code, Reader& in, TimeFields& out) {
  switch (code) {
    case 'Y':
      return in.number(4, 4, 0, 9999, out.year);
    case 'y':
      if (!in.number(2, 2, 0, 99, out.year)) return false;
      out.year += out.year < 69 ? 2000 : 1900;  // as POSIX has it
      return true;
    case 'm':
      return in.number(1, 2, 1, 12, out.month);
    case 'd':
    case 'e':
      return in.number(1, 2, 1, 31, out.day);
    case 'H':
      return in.number(1, 2, 0, 23, out.hour);
    case 'I':
      return in.number(1, 2, 1, 12, out.hour);
    case 'M':
      return in.number(1, 2, 0, 59, out.minute);
    case 'S':
      return in.number(1, 2, 0, 60, out.second);
    case 'f':
      return in.fraction(out.nanoseconds);
    case 'b':
    case 'B':
    case 'h':
      out.month = in.name(kMonths) + 1;
      return out.month > 0;
    case 'a':
    case 'A':
      return in.name(kWeekdays) >= 0;
    case 'p':
      out.has_half = true;
      return in.half_of_day(out.afternoon);
    case 'z':
      return in.offset(out.offset);
    default:
      return in.literal('%');
  }
}

// %F, %T, %R and %D written out; "%-d" becomes "%d".
std::string expand(std::string_view format) {
  std::string result;
  for (size_t i = 0; i < format.size(); ++i) {
    if (is_space(format[i])) {
      if (!result.ends_with(' ')) result += ' ';
      continue;
    }
    result += format[i];
    if (format[i] != '%') continue;
    ++i;
    if (i < format.size() && format[i] == '-') ++i;
    const char code = i < format.size() ? format[i] : '\0';
    result.pop_back();
    if (code == 'F') {
      result += "%Y-%m-%d";
    } else if (code == 'T') {
      result += "%H:%M:%S";
    } else if (code == 'R') {
      result += "%H:%M";
    } else if (code == 'D') {
      result += "%m/%d/%y";
    } else if (std::ranges::find(kCodes, code, &Code::letter) != kCodes.end()) {
      (result += '%') += code;
    } else {
      throw_error<UsageError>(
          "--time-format '{}': %{} is not known; expected %Y %y %m %d %e %H %I %M %S %f %b %B %h "
          "%a "
          "%A %p %z %F %T %R %D or %%",
          format, code == '\0' ? std::string() : std::string(1, code));
    }
  }
  return result;
}

}  // namespace

TimeFormat::TimeFormat(std::string_view text) : text_(text), expanded_(expand(trim(text))) {
  const auto has = [&](std::string_view codes) {
    for (size_t i = 0; i + 1 < expanded_.size(); ++i) {
      if (expanded_[i] != '%') continue;
      if (codes.find(expanded_[++i]) != std::string_view::npos) return true;
    }
    return false;
  };
  if (!has("Yy") || !has("mbBh") || !has("de")) {
    throw_error<UsageError>(
        "--time-format '{}': expected a year (%Y, %y), a month (%m, %b) and a day (%d), or %F",
        text);
  }
  if (has("I") != has("p")) {
    throw_error<UsageError>("--time-format '{}': expected %I and %p together, or %H", text);
  }
}

std::string TimeFormat::example() const {
  std::string text;
  for (size_t i = 0; i < expanded_.size(); ++i) {
    if (expanded_[i] != '%') {
      text += expanded_[i];
      continue;
    }
    text += std::ranges::find(kCodes, expanded_[++i], &Code::letter)->example;
  }
  return text;
}

std::optional<Time> TimeFormat::parse(std::string_view time, int64_t units_per_second) const {
  Reader in(trim(time));
  TimeFields fields;
  for (size_t i = 0; i < expanded_.size(); ++i) {
    const char c = expanded_[i];
    const bool read = c == '%'   ? read_field(expanded_[++i], in, fields)
                      : c == ' ' ? in.spaces()
                                 : in.literal(c);
    if (!read) return std::nullopt;
  }
  if (!in.at_end()) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year{fields.year},
                                         std::chrono::month(static_cast<unsigned>(fields.month)),
                                         std::chrono::day(static_cast<unsigned>(fields.day))};
  if (!date.ok()) return std::nullopt;
  const int hour = fields.has_half ? fields.hour % 12 + (fields.afternoon ? 12 : 0) : fields.hour;
  const int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  const int64_t seconds =
      days * 86400 + hour * 3600 + fields.minute * 60 + fields.second - fields.offset;
  return unix_time(seconds, fields.nanoseconds, units_per_second);
}

}  // namespace seqfuse::data
