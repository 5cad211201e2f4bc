// Generates raw logs of any size in the format of a known dataset, with planted preferences that a
// model can learn; docs/synthesize.md describes them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace seqfuse::data {

struct SynthesisOptions {
  std::string like;              // kuairand-pure, kuairand-1k, kuairand-27k or ml-1m
  std::optional<int64_t> users;  // default: as many as in the dataset
  std::optional<int64_t>
      items;  // default: in proportion to the events, at most as many as in the dataset
  std::optional<int64_t> events;  // exact total number; default: by the dataset's lengths
  double length_scale = 1;        // multiplies the dataset's lengths
  uint64_t seed = 1;
};

// The planted preferences, measured on the written events.
struct LabelReport {
  std::string name;
  bool learnable = true;
  double base_rate = 0;
  // Area under the ROC curve of the true probabilities, which no model can beat. For the noise
  // label, whose probability is constant, the AUC of the first label's probability.
  double oracle_auc = 0;
};

struct SynthesisReport {
  int64_t users = 0, items = 0, events = 0;
  int64_t shortest = 0, median = 0, longest = 0;  // events of a user
  double transition_rate = 0;                     // share of events drawn as a successor
  std::vector<LabelReport> labels;
};

// Writes the files and synthesis.json into a directory that appears when complete; replaces an
// existing one. The same options produce the same bytes for any number of threads. Throws
// UsageError for options out of range, IoError if the operating system refuses.
SynthesisReport synthesize(const SynthesisOptions& options, const std::filesystem::path& output);

}  // namespace seqfuse::data
