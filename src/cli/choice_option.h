// Options whose values are the names of an enumeration.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "config/choices.h"

namespace seqfuse::cli {

// value: the default on entry; set when the arguments are parsed.
template <config::Choice E>
CLI::Option* add_choice(CLI::App& app, const std::string& option, E& value,
                        const std::string& help) {
  const config::Names names = choice_names(E{});
  return app
      .add_option_function<std::string>(
          option, [&value](const std::string& name) { value = *config::find_choice<E>(name); },
          help)
      ->check(CLI::IsMember(std::vector<std::string>(names.begin(), names.end())));
}

}  // namespace seqfuse::cli
