// seqfuse with a library loaded before all others, which disturbs what the process finds.
#pragma once

#include <map>
#include <string>

namespace seqfuse {

// Sanitizers must be loaded before all others themselves, and make every start slow.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

inline std::map<std::string, std::string> preloaded(const std::string& library) {
  return {{"LD_PRELOAD", library}};
}

}  // namespace seqfuse
