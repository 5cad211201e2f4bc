#include "base/log.h"

#include <unistd.h>

#include <cstdio>
#include <mutex>

#include "base/progress.h"

namespace seqfuse::log {
namespace {

Level current_level = Level::info;
std::mutex mutex;

}  // namespace

void set_level(Level level) {
  current_level = level;
}

void write(Level level, std::string_view tag, std::string_view message) {
  if (level > current_level) return;
  const std::lock_guard lock(mutex);
  const std::string line = fmt::format("{}[{}] {}{}\n", stderr_is_terminal() ? "\r\033[K" : "", tag,
                                       level == Level::warning ? "warning: " : "", message);
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

}  // namespace seqfuse::log
