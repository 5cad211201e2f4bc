// The meaning of a dataset's ids, values and labels: by index, the raw ids of the source.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace seqfuse::data {

// A categorical feature of the user: values 1..vocab_size-1, 0 = unknown.
struct ContextFeature {
  std::string name;
  int64_t vocab_size = 0;
};

// The kind of actions (labels).
enum class ActionKind { none, classes, bits };

// Upper limit of distinct values of an action column, or of labels.
inline constexpr int64_t kMostLabels = 10000;

struct Manifest {
  std::string dataset_name;
  int64_t num_users = 0, num_items = 0, num_events = 0;
  bool has_timestamps = false;
  // Unit of timestamps: 1: Unix seconds, 1000: milliseconds, ...; 0: plain numbers of unknown unit.
  int64_t time_units_per_second = 0;
  ActionKind action_kind = ActionKind::none;
  int64_t num_actions = 0;                // actions are in [0, num_actions): classes, or 2^bits
  std::vector<std::string> action_names;  // per class or per bit, least significant first
  std::vector<ContextFeature> context;    // in order; a "user_id" feature comes first
  std::string hash;                       // of the vocabularies: identifies the meaning of ids
};

// Immutable; every method may be called from any thread. Raw ids of items and raw values of a context
// feature ascend with their indices: integers by value, then other texts bytewise.
class Vocabulary {
 public:
  virtual ~Vocabulary() = default;

  const std::filesystem::path& directory() const { return directory_; }
  const Manifest& manifest() const { return manifest_; }
  int64_t num_items() const { return manifest_.num_items; }

  virtual std::string item_id(int64_t item) const = 0;     // item in [1, num_items]
  virtual std::string item_title(int64_t item) const = 0;  // "" if the source has none
  virtual std::optional<int64_t> find_item(std::string_view raw_id) const = 0;

  // Raw values of a context feature; value in [1, vocab_size). Without a vocabulary for the
  // feature, the raw values are the indices.
  virtual std::string context_value(int64_t feature, int64_t value) const;
  virtual std::optional<int64_t> find_context(int64_t feature, std::string_view raw_value) const;

 protected:
  std::filesystem::path directory_;
  Manifest manifest_;
};

}  // namespace seqfuse::data
