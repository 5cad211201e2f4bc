#include "data/ingest/log_columns.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "data/ingest/column_hints.h"
#include "data/ingest/side_tables.h"
#include "data/read/member_names.h"
#include "data/read/typed_header.h"

namespace seqfuse::data {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The first candidate that is a column; the first candidate if none is.
std::string first_of(const std::vector<std::string>& names,
                     const std::vector<std::string>& candidates) {
  const auto is_column = [&](const std::string& name) {
    return !name.empty() && contains(names, name);
  };
  const auto found = std::find_if(candidates.begin(), candidates.end(), is_column);
  return found == candidates.end() ? candidates.front() : *found;
}

// Benchmark files for sequential models hold a row for each target, with its history as a list.
void check_not_cut(const DatasetFormat& format, const std::vector<std::string>& names,
                   const InputMember& member) {
  const std::string list = format.item_column + "_list";
  if (!contains(names, list)) return;
  throw_error<DataError>(
      "{} holds histories that were already cut into samples (column {}); give the .inter file "
      "with one event per row",
      member.location, list);
}

void check_types(const TypedHeader& header, const EventColumns& columns) {
  header.check_id(columns.user);
  header.check_id(columns.item);
  if (columns.time >= 0) header.check_single_value(columns.time);
  for (const int action : columns.actions) header.check_single_value(action);
}

}  // namespace

EventColumns find_event_columns(const DatasetFormat& format, const IngestOptions& options,
                                std::vector<std::string> names, const InputMember& member) {
  const bool sequences = options.kind == InputKind::processed_seqs;
  std::optional<TypedHeader> typed;
  if (format.table.typed_header && !sequences) {
    typed.emplace(names, member.location);
    names = typed->names;
    check_not_cut(format, names, member);
  }
  EventColumns columns;
  for (auto& [name, value] : partitions_of(member.name)) {
    if (contains(names, name)) continue;
    names.push_back(std::move(name));
    columns.constants.push_back(std::move(value));
  }
  columns.names = names;
  const std::vector<std::string> own(names.begin(), names.end() - std::ssize(columns.constants));
  columns.blank_time = options.blank_time;
  columns.time_format = options.time_format;
  columns.action_rule = format.action_rule;
  std::string user = format.user_column, item = format.item_column, time = format.time_column;
  std::vector<std::string> actions = format.action_columns;
  if (sequences) {
    user = first_of(names, {user, "user_id"});
    item = first_of(names, {item, "movie_id", "video_id", "item_id"});
    time = first_of(names, {time, "unix_timestamp", "time_ms", "timestamp"});
    const std::string action =
        first_of(names, {actions.empty() ? "" : actions[0], "rating", "action_weights", "action"});
    if (!contains(names, time)) time.clear();
    actions.clear();
    if (!action.empty() && contains(names, action)) actions = {action};
    columns.action_rule = actions.empty() ? ActionRule::none : ActionRule::labels;
  }
  if (format.time_if_present && !contains(names, time)) time.clear();
  const auto index = [&](const std::string& name) {
    if (!sequences && !contains(names, name)) {
      throw DataError(no_column(names, name, member.location) +
                      missing_column_hint(format, options, name, own, member));
    }
    return column_index(names, name, member.location);
  };
  columns.user = index(user);
  columns.item = index(item);
  if (!time.empty()) columns.time = index(time);
  for (const std::string& action : actions) columns.actions.push_back(index(action));
  if (!format.users || sequences) {
    for (const ContextSource& feature : format.context) {
      columns.context.push_back(index(feature.column));
    }
  }
  if (typed) check_types(*typed, columns);
  return columns;
}

std::vector<std::string> json_columns(const DatasetFormat& format, const IngestOptions& options,
                                      const InputMember& member, size_t& required) {
  std::vector<std::string> names;
  const auto partitions = partitions_of(member.name);
  const auto add = [&](const std::string& name) {
    const auto is_it = [&](const auto& partition) { return partition.first == name; };
    if (name.empty() || contains(names, name) || std::ranges::any_of(partitions, is_it)) return;
    names.push_back(name);
  };
  add(format.user_column);
  add(format.item_column);
  for (const std::string& action : format.action_columns) add(action);
  if (options.blank_time == BlankTime::error) add(format.time_column);
  required = names.size();
  add(format.time_column);
  if (!format.users) {
    for (const ContextSource& feature : format.context) add(feature.column);
  }
  return names;
}

}  // namespace seqfuse::data
