#include "data/ingest/log_columns.h"

#include <algorithm>
#include <utility>

#include "data/ingest/side_tables.h"
#include "data/read/member_names.h"

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

}  // namespace

EventColumns find_event_columns(const DatasetFormat& format, const IngestOptions& options,
                                std::vector<std::string> names, const InputMember& member) {
  EventColumns columns;
  for (auto& [name, value] : partitions_of(member.name)) {
    if (contains(names, name)) continue;
    names.push_back(std::move(name));
    columns.constants.push_back(std::move(value));
  }
  columns.names = names;
  columns.blank_time = options.blank_time;
  columns.action_rule = format.action_rule;
  std::string user = format.user_column, item = format.item_column, time = format.time_column;
  std::vector<std::string> actions = format.action_columns;
  const bool sequences = options.kind == InputKind::processed_seqs;
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
  const auto index = [&](const std::string& name) {
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
  return columns;
}

}  // namespace seqfuse::data
