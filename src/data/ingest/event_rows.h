// Converts rows of an interaction log to events: column roles, and how an action becomes a label.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset/dataset.h"
#include "data/ingest/event_store.h"
#include "data/ingest/id_table.h"
#include "data/read/time_format.h"

namespace seqfuse::data {

enum class ActionRule {
  none,
  whole_stars,  // rating 1..5 -> 0..4
  half_stars,   // rating 0.5..5 -> 2 * rating - 1 = 0..9
  bits,         // column k not zero -> bit k
  values,       // distinct values, ascending -> 0, 1, ...
  labels,       // already labels: integers >= 0
};

enum class BlankTime { error, between };

// Codes of all raw values seen.
struct IdTables {
  IdTable users, items, actions;
  std::vector<std::unique_ptr<IdTable>> context;  // per context column of the log
};

struct EventColumns {
  std::vector<std::string> names;  // all columns of the log, in order
  int user = -1, item = -1;
  int time = -1;  // -1: the log has no time
  ActionRule action_rule = ActionRule::none;
  std::vector<int> actions;  // bits: one per bit; others: one
  std::vector<int> context;  // of the user, repeated in each of the user's rows
  BlankTime blank_time = BlankTime::error;
  // Values of the last names, which are not in the rows but apply to the whole file.
  std::vector<std::string> constants;
  int64_t units_per_second = 1;           // unit that times of a known unit are converted to
  std::optional<TimeFormat> time_format;  // of times; without one: numbers or ISO 8601
};

// A user's context in one row of the log.
struct ContextRow {
  uint32_t user;
  std::vector<uint32_t> values;  // codes, per context column
  bool operator==(const ContextRow&) const = default;
};

struct BadRow {
  int64_t line;  // of the piece, from 1
  std::string reason;
};

// First occurrence of an action that is not a number.
struct WordAction {
  uint32_t code;
  int64_t line;  // of the piece, from 1
};

// Contents of a piece of a log.
struct ParsedRows {
  int64_t lines = 0;
  std::vector<Event> events;
  std::vector<ContextRow> context;  // rows whose context differs from the previous row's
  int64_t bad_count = 0;
  std::vector<BadRow> bad;        // the first few
  bool has_number_times = false;  // times without a unit
  bool has_unit_times = false;    // ISO 8601, or in the time format
  std::vector<WordAction> words;  // with ActionRule::values: those new to the RowMapper

  void clear();  // keeps the memory of the events
};

// Turns rows into events. One per thread, because it caches recent ids.
class RowMapper {
 public:
  RowMapper(const EventColumns& columns, IdTables& tables);

  // Appends the row's event, or records a bad row with the reason. The items of the last events are
  // known only after finish().
  void add(std::span<const std::string_view> fields, int64_t line, ParsedRows& out);
  // Records a row that is already known to be malformed.
  void add_bad(std::string reason, int64_t line, ParsedRows& out);
  // A row that contains a whole user: the item, action and time columns are lists "[1, 2, 3]".
  void add_sequence(std::span<const std::string_view> fields, int64_t line, ParsedRows& out);
  // A line of a user and its items, one event each; there is at least one item.
  void add_items(std::span<const std::string_view> words, int64_t line, ParsedRows& out);
  // Call after the last row of out.
  void finish(ParsedRows& out);

 private:
  // An item whose code is looked up some rows later, when its table slot has arrived in the
  // cache.
  struct PendingItem {
    size_t event = 0;
    int64_t id = 0;
    bool waiting = false;
  };
  static constexpr size_t kPendingItems = 16;

  std::string bad_field(int column, std::string_view value, std::string_view expected) const;
  void map(std::span<const std::string_view> fields, int64_t line, ParsedRows& out);
  std::string wrong_count(size_t fields) const;
  std::span<const std::string_view> with_constants(std::span<const std::string_view> fields);
  bool map_action(std::span<const std::string_view> fields, int64_t line, ParsedRows& out,
                  int32_t& action);
  bool map_time(std::string_view field, ParsedRows& out, Event& event);
  void note_word(uint32_t code, int64_t line, ParsedRows& out);
  void map_item(std::string_view field, ParsedRows& out);
  void resolve(PendingItem& item, ParsedRows& out);
  void add_context(std::span<const std::string_view> fields, uint32_t user, ParsedRows& out);

  const EventColumns& columns_;
  IdTables& tables_;
  IdTable::Cache users_, items_, actions_;
  std::vector<IdTable::Cache> context_;
  std::array<PendingItem, kPendingItems> pending_;
  size_t next_pending_ = 0;
  std::string reason_;  // of the last failure of map_*()
  std::vector<std::string_view> lists_[3];
  std::vector<std::string_view> row_;  // with constants, or from a list
  std::vector<bool> words_seen_;       // by code of an action
  int64_t num_words_ = 0;
};

}  // namespace seqfuse::data
