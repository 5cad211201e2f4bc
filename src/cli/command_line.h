// Parses a verb's arguments with CLI11, the same way for every verb.
#pragma once

#include <CLI/CLI.hpp>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"

namespace seqfuse::cli {

// Refuses an empty or blank path, as from an unset shell variable.
inline const CLI::Validator kPath(
    [](std::string& text) {
      const bool blank = text.find_first_not_of(" \t\r\n") == std::string::npos;
      return blank ? fmt::format("the path '{}' is blank; give the name of a file or folder", text)
                   : std::string();
    },
    "");

// Accepts only whole numbers of at least `least`.
inline CLI::Validator whole_number(int64_t least) {
  return {[least](std::string& text) {
            int64_t value = 0;
            const char* end = text.data() + text.size();
            const auto [stop, error] = std::from_chars(text.data(), end, value);
            const bool fits = error == std::errc() && stop == end && value >= least;
            return fits ? std::string()
                        : fmt::format("{} is not a whole number of {} or more", text, least);
          },
          ""};
}

// --device; `device` is set to the default on entry.
inline void add_device_option(CLI::App& app, std::string& device) {
  app.add_option("--device", device, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
}

// Parses argv[1..]. Returns an exit code if the verb is done (--help was printed), else nothing.
// Throws UsageError with CLI11's message and a pointer to --help.
inline std::optional<int> parse_arguments(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    throw_error<UsageError>("{}: {}\n  `seqfuse {} --help` lists the options", app.get_name(),
                            error.what(), app.get_name());
  }
}

}  // namespace seqfuse::cli
