#include "base/progress.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <utility>

#include "base/log.h"

namespace seqfuse {

bool stderr_is_terminal() {
  static const bool terminal = isatty(STDERR_FILENO) != 0;
  return terminal;
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0) || !std::isfinite(seconds)) return "?";
  if (seconds < 100) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  const int64_t h = whole / 3600, m = whole / 60 % 60, s = whole % 60;
  return h > 0 ? fmt::format("{}:{:02}:{:02}", h, m, s) : fmt::format("{}:{:02}", m, s);
}

std::string format_count(double value) {
  constexpr const char* kPrefixes[] = {"", " k", " M", " G", " T"};
  int prefix = 0;
  while (std::abs(value) >= 999.5 && prefix < 4) {
    value /= 1000;
    ++prefix;
  }
  if (prefix == 0 && value == std::floor(value)) return fmt::format("{:.0f}", value);
  return fmt::format("{:.3g}{}", value, kPrefixes[prefix]);
}

Progress::Progress(std::string tag, std::string unit, int64_t total)
    : tag_(std::move(tag)),
      unit_(std::move(unit)),
      total_(total),
      start_(Clock::now()),
      last_(start_) {}

Progress::~Progress() {
  if (stderr_is_terminal()) std::fputs("\r\033[K", stderr);
}

void Progress::update(int64_t done, std::string_view detail) {
  const auto now = Clock::now();
  const bool terminal = stderr_is_terminal();
  if (now - last_ < (terminal ? std::chrono::milliseconds(200) : std::chrono::milliseconds(5000))) {
    return;
  }
  last_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double rate = static_cast<double>(done) / seconds;
  std::string text = total_ > 0
                         ? fmt::format("{} of {} {}", format_count(static_cast<double>(done)),
                                       format_count(static_cast<double>(total_)), unit_)
                         : fmt::format("{} {}", format_count(static_cast<double>(done)), unit_);
  text += fmt::format(", {} {}/s", format_count(rate), unit_);
  if (!detail.empty()) text += fmt::format(", {}", detail);
  if (total_ > 0 && rate > 0) {
    text += fmt::format(", {} left", format_duration(static_cast<double>(total_ - done) / rate));
  }
  if (terminal) {
    const std::string line = fmt::format("\r\033[K[{}] {}", tag_, text);
    std::fwrite(line.data(), 1, line.size(), stderr);
    std::fflush(stderr);
  } else {
    log::write(log::Level::info, tag_, text);
  }
}

}  // namespace seqfuse
