// Loads gin files and --gin overrides into a checked Config.
#pragma once

#include <string>
#include <vector>

#include "config/roots.h"

namespace seqfuse::config {

template <class Root>
struct Loaded {
  Root config;
  // A gin file with the value in force of every parameter of the root's classes. Loads back to an
  // equal Root.
  std::string operative;
  // RankingArgs is bound. `train ranking` requires it; its required parameters are checked only
  // then.
  bool ranking_bound = false;
};
using LoadedConfig = Loaded<Config>;

// file: path of a gin file ("" for none). overrides: "Class.parameter=value" each, applied last, in
// order. Throws IoError if the file cannot be read, else UsageError with "file:line:column: ..."
// and the nearest known name. Checks all names; for the root's classes also types, required
// parameters and the rules of validate.h. Root: one of roots.h.
template <class Root = Config>
Loaded<Root> load_config(const std::string& file, const std::vector<std::string>& overrides);

// The same for a string. source: its name in messages. Includes are relative to the working
// directory.
template <class Root = Config>
Loaded<Root> load_config_text(const std::string& source, const std::string& text,
                              const std::vector<std::string>& overrides = {});

}  // namespace seqfuse::config
