// Times in a layout that people describe as for strptime: "%d.%m.%Y %H:%M".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "data/read/times.h"

namespace seqfuse::data {

// %Y %y %m %d %e %H %I %M %S %f (fraction of a second) %b %B %h (English months) %a %A (weekday, not
// checked) %p %z; %F is %Y-%m-%d, %T is %H:%M:%S, %R is %H:%M, %D is %m/%d/%y; %% is a percent sign.
// Numbers may lack leading zeros, but %Y has four digits. A space stands for one space or tab or
// more. Without %z, times are UTC.
class TimeFormat {
 public:
  // Throws UsageError if a code is not one of these, or if year, month or day is missing.
  explicit TimeFormat(std::string_view text);

  const std::string& text() const { return text_; }

  // New Year's Eve of 2024, five past six in the evening.
  std::string example() const;

  // Nothing if a time is not in this format or there is no such time (February 30).
  std::optional<Time> parse(std::string_view time, int64_t units_per_second = 1) const;

 private:
  std::string text_;      // as given
  std::string expanded_;  // without %F, %T, %R, %D and with a space for each run of spaces
};

}  // namespace seqfuse::data
