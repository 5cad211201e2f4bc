#include "base/cpu.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace seqfuse {
namespace detail {
extern const char* const kBuiltForFeatures[];  // ends with null
}  // namespace detail

Cpu this_cpu() {
  Cpu cpu;
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line) && !line.empty();) {  // the first processor's block
    const size_t colon = line.find(':');
    if (colon == std::string::npos || colon + 2 > line.size()) continue;
    const std::string value = line.substr(colon + 2);
    if (line.starts_with("model name")) cpu.model = value;
    if (line.starts_with("flags")) {
      std::istringstream words(value);
      for (std::string word; words >> word;) cpu.features.push_back(word);
    }
  }
  return cpu;
}

std::vector<std::string> built_for_features() {
  std::vector<std::string> features;
  for (const char* const* name = detail::kBuiltForFeatures; *name != nullptr; ++name) {
    features.emplace_back(*name);
  }
  return features;
}

std::vector<std::string> missing_features(const Cpu& cpu) {
  std::vector<std::string> missing;
  if (cpu.features.empty()) return missing;  // unknown
  for (std::string& feature : built_for_features()) {
    if (std::find(cpu.features.begin(), cpu.features.end(), feature) == cpu.features.end()) {
      missing.push_back(std::move(feature));
    }
  }
  return missing;
}

}  // namespace seqfuse
