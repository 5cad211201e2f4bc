// Loads gin files and --gin overrides into a checked Config.
#pragma once

#include <string>
#include <vector>

#include "config/roots.h"

namespace seqfuse::config {

template <class Root>
struct Loaded {
  Root config;
  // A gin file of every parameter of the root's classes with the value in force; loads back to an
  // equal one.
  std::string operative;
  // RankingArgs is bound. `train ranking` needs that; its required parameters are checked if so.
  bool ranking_bound = false;
};
using LoadedConfig = Loaded<Config>;

// file: path of a gin file ("" for none). overrides: "Class.parameter=value" each, applied last, in
// order. Throws IoError if the file cannot be read, else UsageError with "file:line:column: ..."
// and the nearest known name; checks all names, and of the root's classes types, required parameters
// and the rules of validate.h. Root: one of roots.h.
template <class Root = Config>
Loaded<Root> load_config(const std::string& file, const std::vector<std::string>& overrides);

// The same for a text. source: its name in messages. Includes are relative to the working
// directory.
template <class Root = Config>
Loaded<Root> load_config_text(const std::string& source, const std::string& text,
                              const std::vector<std::string>& overrides = {});

// docs/config.md: a table per class.
std::string config_reference();

}  // namespace seqfuse::config
