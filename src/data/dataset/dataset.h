// A preprocessed, memory-mapped dataset directory, written by `seqfuse preprocess` in the format of
// docs/data.md. One row is one user; items are vocabulary indices 1..num_items (0 = unknown).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "data/dataset/vocabulary.h"

namespace seqfuse::data {

struct Sample;  // sample.h

// Views into the mapped file; valid as long as the Dataset lives.
struct UserSequence {
  std::span<const int64_t> items;       // [n], oldest first
  std::span<const int64_t> actions;     // [n], or empty if the dataset has none
  std::span<const int64_t> timestamps;  // [n], non-decreasing; unit as in the source; or empty
};

// Immutable; every method may be called from any thread.
class Dataset : public Vocabulary {
 public:
  // Throws DataError naming the file and field when something is missing, truncated or
  // inconsistent.
  static std::shared_ptr<const Dataset> open(const std::filesystem::path& directory);

  int64_t num_users() const { return manifest_.num_users; }

  // row in [0, num_users).
  virtual UserSequence user(int64_t row) const = 0;
  virtual int64_t context(int64_t feature, int64_t row) const = 0;

  // Throws DataError naming the file if data of these windows has changed since the dataset was
  // opened: damaged, truncated or unreadable. Does nothing for data in memory.
  virtual void check_unchanged(const Sample* /*samples*/, int64_t /*count*/) const {}

  // Raw ids as in the source.
  virtual std::string user_id(int64_t row) const = 0;
  virtual std::optional<int64_t> find_user(std::string_view raw_id) const = 0;
};

}  // namespace seqfuse::data
