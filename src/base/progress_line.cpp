#include "base/progress_line.h"

#include <fmt/format.h>

#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "base/progress.h"

namespace seqfuse {
namespace {

// False if the thread was asked to stop before the time was over.
bool wait_for(std::chrono::milliseconds time, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  wake.wait_for(lock, stop, time, [] { return false; });
  return !stop.stop_requested();
}

}  // namespace

ProgressLine::ProgressLine(std::string tag, std::function<std::string()> text, Intervals intervals)
    : printing_([tag = std::move(tag), text = std::move(text), intervals](std::stop_token stop) {
        const bool terminal = stderr_is_terminal();
        while (wait_for(terminal ? intervals.terminal : intervals.elsewhere, stop)) {
          if (terminal) {
            fmt::print(stderr, "\r\033[K[{}] {}", tag, text());
            std::fflush(stderr);
          } else {
            log::write(log::Level::info, tag, text());
          }
        }
      }) {}

ProgressLine::~ProgressLine() {
  printing_.request_stop();
  printing_.join();
  if (stderr_is_terminal()) std::fputs("\r\033[K", stderr);
}

}  // namespace seqfuse
