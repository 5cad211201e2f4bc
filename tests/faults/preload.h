// seqfuse with a library loaded before all others, which disturbs what the process finds.
#pragma once

#include <map>
#include <string>

#include "tests/sanitized.h"

namespace seqfuse {

// Sanitizers must be loaded before all others themselves: see kSanitized.
inline std::map<std::string, std::string> preloaded(const std::string& library) {
  return {{"LD_PRELOAD", library}};
}

}  // namespace seqfuse
