// A progress line: rewritten in place on a terminal, a plain line every few seconds elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace seqfuse {

bool stderr_is_terminal();

// "1:02:03", "4:05" or "12.3 s"; "?" when negative.
std::string format_duration(double seconds);

// "1.23 M", "45.6 k", "789": three significant digits, SI prefix.
std::string format_count(double value);

// Used by one thread. The text is shown with rate and time left:
//   [preprocess] 12.3 M of 20 M rows, 1.9 M rows/s, 4.1 s left
class Progress {
 public:
  // total: units of work, or 0 if unknown. unit: plural, such as "rows".
  Progress(std::string tag, std::string unit, int64_t total);
  ~Progress();  // clears the terminal line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // done: units finished so far. Cheap: looks at the clock, prints at most 5 times a second on a
  // terminal, every 5 seconds elsewhere. detail: appended ("loss 4.21, 310 k tokens/s").
  void update(int64_t done, std::string_view detail = {});

 private:
  using Clock = std::chrono::steady_clock;
  std::string tag_, unit_;
  int64_t total_;
  Clock::time_point start_, last_;
};

}  // namespace seqfuse
