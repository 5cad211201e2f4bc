#include "data/ingest/action_labels.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/error.h"
#include "data/read/csv.h"

namespace seqfuse::data {
namespace {

constexpr int64_t kMaxClasses = 10000;

// Distinct values ascending: as numbers if all are, else bytewise.
void name_values(const IdTable& table, const std::string& column, ActionLabels& labels) {
  if (table.size() > kMaxClasses) {
    throw_error<DataError>(
        "--action-column {} has {} distinct values, at most {} can be labels: is it the right "
        "column?",
        column, table.size(), kMaxClasses);
  }
  std::vector<std::pair<std::string, uint32_t>> values;
  bool numbers = true;
  for (const uint32_t code : table.sorted_codes()) {
    values.emplace_back(table.text(code), code);
    numbers &= parse_double(values.back().first).has_value();
  }
  std::sort(values.begin(), values.end(), [&](const auto& a, const auto& b) {
    return numbers ? *parse_double(a.first) < *parse_double(b.first) : a.first < b.first;
  });
  labels.index.resize(table.code_bound());
  for (const auto& [value, code] : values) {
    labels.index[code] = static_cast<int64_t>(labels.names.size());
    labels.names.push_back(value);
  }
  labels.rule = fmt::format("Action: the distinct values of {}, ascending, are 0 to {}.", column,
                            values.size() - 1);
}

int32_t highest_label(const HistoryPass& pass) {
  std::atomic<int32_t> highest{0};
  pass.for_each([&](int64_t, const std::vector<Event>& history) {
    int32_t mine = 0;
    for (const Event& event : history) mine = std::max(mine, event.action);
    for (int32_t seen = highest; seen < mine && !highest.compare_exchange_weak(seen, mine);) {
    }
  });
  return highest;
}

// Sequences hold labels already: the format then names them, if it can.
ActionRule rule_in_force(const DatasetFormat& format, const IngestOptions& options,
                         const Ingested& in) {
  if (options.kind == InputKind::log) return format.action_rule;
  if (!in.has_actions) return ActionRule::none;
  const bool named =
      format.action_rule != ActionRule::none && format.action_rule != ActionRule::values;
  return named ? format.action_rule : ActionRule::labels;
}

}  // namespace

ActionLabels make_action_labels(const DatasetFormat& format, const IngestOptions& options,
                                const Ingested& in, const HistoryPass& pass) {
  ActionLabels labels;
  const ActionRule rule = rule_in_force(format, options, in);
  if (rule == ActionRule::none) return labels;
  labels.kind = rule == ActionRule::bits ? ActionKind::bits : ActionKind::classes;
  const int32_t highest = options.kind == InputKind::log ? 0 : highest_label(pass);
  const std::string input = options.input.string();
  switch (rule) {
    case ActionRule::none:
      break;
    case ActionRule::whole_stars:
      for (int star = 1; star <= 5; ++star) labels.names.push_back(std::to_string(star));
      labels.rule = "Action: rating - 1, so 0 to 4.";
      break;
    case ActionRule::half_stars:
      for (int half = 1; half <= 10; ++half) {
        labels.names.push_back(fmt::format("{}.{}", half / 2, half % 2 * 5));
      }
      labels.rule = "Action: 2 * rating - 1, so 0 to 9.";
      break;
    case ActionRule::bits:
      labels.names = format.action_columns;
      labels.rule = fmt::format("Action: bit k is set where column k of {} is not 0.",
                                fmt::join(format.action_columns, ", "));
      break;
    case ActionRule::values:
      name_values(in.tables.actions, format.action_columns[0], labels);
      break;
    case ActionRule::labels:
      if (highest >= kMaxClasses) {
        throw_error<DataError>(
            "{} holds the label {}, at most {} are classes: is it the right column?", input,
            highest, kMaxClasses - 1);
      }
      for (int32_t a = 0; a <= highest; ++a) labels.names.push_back(std::to_string(a));
      labels.rule = "Action: the labels of the input as they are.";
      break;
  }
  if (highest >= labels.count()) {
    throw_error<DataError>("{} holds the label {}, but labels of {} are 0 to {}", input, highest,
                           format.name, labels.count() - 1);
  }
  return labels;
}

}  // namespace seqfuse::data
