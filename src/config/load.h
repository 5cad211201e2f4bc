// From gin files and --gin overrides to a checked Config.
#pragma once

#include <string>
#include <vector>

#include "config/args.h"

namespace seqfuse::config {

struct LoadedConfig {
  Config config;
  std::string operative;  // a gin file of every parameter with the value in force; loads back to this
};

// file: path of a gin file ("" for none). overrides: "Class.parameter=value" each, applied last.
// Throws UsageError with "file:line:column: ..." and the nearest known name; checks cross-field rules
// (allowed strings, positive sizes, kernel_backend, tensor parallel size).
LoadedConfig load_config(const std::string& file, const std::vector<std::string>& overrides);

// docs/config.md: a table per class.
std::string config_reference();

}  // namespace seqfuse::config
