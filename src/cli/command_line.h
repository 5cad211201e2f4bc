// Parsing of one verb's arguments with CLI11, the same way for every verb.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <string>

#include "base/error.h"

namespace seqfuse::cli {

// Refuses a name that is empty or blank. Unchecked, it would mean that none was given, or the
// current directory.
inline CLI::Validator not_blank() {
  return CLI::Validator(
      [](const std::string& name) {
        const bool blank = name.find_first_not_of(" \t") == std::string::npos;
        return blank ? "is blank: give a name, or leave the option out" : std::string();
      },
      "");
}

// Parses argv[1..]. Returns an exit code if the verb is done (--help was printed), nothing to go
// on. Throws UsageError, with CLI11's message and a pointer to --help.
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
