// Messages for people, on standard error: "[train] epoch 3 done". Results go to standard output.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace seqfuse::log {

enum class Level { quiet, warning, info };

// Messages above the level are dropped. Default: info. Not thread-safe: set once at start.
void set_level(Level level);

// Writes one whole line, atomically with respect to other threads; clears a progress line first.
void write(Level level, std::string_view tag, std::string_view message);

template <class... Args>
void info(std::string_view tag, fmt::format_string<Args...> format, Args&&... args) {
  write(Level::info, tag, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void warning(std::string_view tag, fmt::format_string<Args...> format, Args&&... args) {
  write(Level::warning, tag, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace seqfuse::log
