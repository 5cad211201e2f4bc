// Formats synthesized events as the files of a dataset.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/synthesize/synthesize_lengths.h"
#include "data/synthesize/synthesize_model.h"

namespace seqfuse::data::synthetic {

// Counts of one label's outcomes by true probability, from which its AUC follows. Counts are
// integers, so sums do not depend on their order.
class LabelTally {
 public:
  void add(float probability, bool positive) {
    const auto bucket = static_cast<int>(probability * (kBuckets - 1));
    ++counts_[positive ? 1 : 0][bucket];
  }
  void add(const LabelTally& other);
  double base_rate() const;
  double auc() const;  // ties count half; 0.5 if all outcomes are equal

 private:
  static constexpr int kBuckets = 4096;
  std::array<std::vector<int64_t>, 2> counts_{std::vector<int64_t>(kBuckets),
                                              std::vector<int64_t>(kBuckets)};
};

struct Tally {
  explicit Tally(size_t num_labels) : labels(num_labels) {}
  int64_t events = 0, transitions = 0;
  std::vector<LabelTally> labels;
  void add(const Tally& other);
};

// Appends an integer or text and a separator.
inline void append(std::string& out, int64_t value, std::string_view separator) {
  char digits[20];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  out.append(digits, end);
  out += separator;
}
inline void append(std::string& out, std::string_view text, std::string_view separator) {
  out += text;
  out += separator;
}

struct LabelInfo {
  std::string name;
  bool learnable;
};

struct FileSpec {
  std::string path;    // within the output folder
  std::string header;  // first line, or empty
};

struct World {
  int64_t users;
  Catalogue catalogue;
  uint64_t seed;
};

// One dataset's files. Methods may be called from any thread.
class Format {
 public:
  virtual ~Format() = default;
  virtual std::vector<FileSpec> files() const = 0;  // the last one lists the items
  virtual std::vector<LabelInfo> labels() const = 0;
  // Appends the user's row and events to the buffer of each file.
  virtual void append_user(int64_t user, int64_t events, std::vector<std::string>& buffers,
                           Tally& tally) const = 0;
  // Appends the items that have numbers [begin, end).
  virtual void append_items(int64_t begin, int64_t end, std::string& buffer) const = 0;
};

// A dataset that can be imitated.
struct KnownDataset {
  const char* name;
  int64_t users, items;
  std::span<const Quantile> (*lengths)();
  bool repeats;  // a user may have an item twice if there are fewer items than events
  std::unique_ptr<Format> (*format)(const World& world);
};

std::unique_ptr<Format> kuairand_pure_format(const World& world);
std::unique_ptr<Format> kuairand_1k_format(const World& world);
std::unique_ptr<Format> kuairand_27k_format(const World& world);
std::unique_ptr<Format> ml_1m_format(const World& world);

}  // namespace seqfuse::data::synthetic
