// Runs seqfuse with an LD_PRELOAD library that changes its environment.
#pragma once

#include <map>
#include <string>

#include "tests/sanitized.h"

namespace seqfuse {

// Sanitizers must be loaded first themselves: see kSanitized.
inline std::map<std::string, std::string> preloaded(const std::string& library) {
  return {{"LD_PRELOAD", library}};
}

}  // namespace seqfuse
