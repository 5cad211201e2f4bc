// The part of a run's metrics.jsonl that does not depend on when it was stopped and resumed.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace seqfuse {

// The lines without values that depend on the clock and without records of configuration changes
// on resume.
inline std::vector<nlohmann::json> metrics_of(const std::filesystem::path& run) {
  std::ifstream file(run / "metrics.jsonl");
  std::vector<nlohmann::json> lines;
  for (std::string text; std::getline(file, text);) {
    nlohmann::json line = nlohmann::json::parse(text);
    if (line.contains("configuration")) continue;
    line.erase("seconds");
    line.erase("tokens_per_second");
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace seqfuse
