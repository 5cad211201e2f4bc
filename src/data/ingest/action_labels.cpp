#include "data/ingest/action_labels.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "base/error.h"
#include "data/read/field_values.h"
#include "data/read/text_encoding.h"

namespace seqfuse::data {
namespace {

constexpr int64_t kMaxClasses = kMostLabels;

struct Value {
  std::string text;
  uint32_t code;
  std::optional<int64_t> integer;  // exact where a double is not
  std::optional<double> number;

  // Numbers ascending, then words bytewise.
  bool operator<(const Value& other) const {
    if (integer && other.integer) return *integer < *other.integer;
    if (number && other.number) return *number < *other.number;
    if (number || other.number) return number.has_value();
    return text < other.text;
  }
};

std::vector<Value> distinct_values(const IdTable& table, const std::string& column) {
  if (table.size() > kMaxClasses) {
    throw_error<DataError>(
        "--action-column {} has {} distinct values, at most {} can be labels: is it the right "
        "column?",
        column, table.size(), kMaxClasses);
  }
  std::vector<Value> values;
  for (const uint32_t code : table.sorted_codes()) {
    std::string text = table.text(code);
    const auto integer = parse_canonical_int64(text);
    const auto number = parse_double(text);
    values.push_back({std::move(text), code, integer, number});
  }
  return values;
}

void name_values(const Ingested& in, const std::string& column,
                 const std::vector<StrayAction>& strays, ActionLabels& labels) {
  std::vector<Value> values = distinct_values(in.tables.actions, column);
  std::erase_if(values, [&](const Value& value) {
    return std::ranges::find(strays, value.code, &StrayAction::code) != strays.end();
  });
  std::stable_sort(values.begin(), values.end());
  labels.index.resize(in.tables.actions.code_bound());
  for (const Value& value : values) {
    labels.index[value.code] = static_cast<int64_t>(labels.names.size());
    labels.names.push_back(value.text);
  }
  labels.rule = fmt::format("Action: the distinct values of {}, ascending, are 0 to {}.", column,
                            values.size() - 1);
}

std::vector<int64_t> events_of_actions(const Ingested& in) {
  std::vector<std::atomic<int64_t>> events(in.tables.actions.code_bound());
  KeptHistories(in.events, {}, int64_t{1} << 28, in.tables.items.code_bound())
      .for_each([&](int64_t, const std::vector<Event>& history) {
        for (const Event& event : history) {
          events[static_cast<size_t>(event.action)].fetch_add(1, std::memory_order_relaxed);
        }
      });
  return {events.begin(), events.end()};
}

int32_t highest_label(const KeptHistories& histories) {
  std::atomic<int32_t> highest{0};
  histories.for_each([&](int64_t, const std::vector<Event>& history) {
    int32_t mine = 0;
    for (const Event& event : history) mine = std::max(mine, event.action);
    for (int32_t seen = highest; seen < mine && !highest.compare_exchange_weak(seen, mine);) {
    }
  });
  return highest;
}

// Sequences already contain labels; the format names them if it can.
ActionRule rule_in_force(const DatasetFormat& format, const IngestOptions& options,
                         const Ingested& in) {
  if (options.kind == InputKind::log) return format.action_rule;
  if (!in.has_actions) return ActionRule::none;
  const bool named =
      format.action_rule != ActionRule::none && format.action_rule != ActionRule::values;
  return named ? format.action_rule : ActionRule::labels;
}

}  // namespace

std::vector<StrayAction> stray_actions(const DatasetFormat& format, const IngestOptions& options,
                                       const Ingested& in) {
  std::vector<StrayAction> strays;
  if (options.kind != InputKind::log || format.action_rule != ActionRule::values) return strays;
  const std::string& column = format.action_columns[0];
  const std::vector<Value> values = distinct_values(in.tables.actions, column);
  const auto is_number = [](const Value& value) { return value.number.has_value(); };
  const int64_t numbers = std::ranges::count_if(values, is_number);
  if (numbers == 0 || numbers == std::ssize(values)) return strays;
  const std::vector<int64_t> events = events_of_actions(in);
  int64_t number_events = 0;
  for (const Value& value : values) number_events += is_number(value) ? events[value.code] : 0;
  const bool mostly_numbers =
      2 * numbers > std::ssize(values) || 2 * number_events > in.events.num_events();
  if (!mostly_numbers) return strays;
  for (const Value& value : values) {
    if (is_number(value)) continue;
    strays.push_back({value.code, events[value.code],
                      fmt::format("{}: column {} is '{}'; expected a number, as in most rows",
                                  in.word_actions.at(value.code), column, excerpt(value.text))});
  }
  if (options.on_bad_row == BadRows::error) {
    throw_error<DataError>(
        "{}\n  correct the row, or skip such rows with --on-bad-row skip (rows: {}, distinct "
        "values: {})",
        strays.front().reason, in.events.num_events() - number_events, strays.size());
  }
  return strays;
}

ActionLabels make_action_labels(const DatasetFormat& format, const IngestOptions& options,
                                const Ingested& in, const KeptHistories& histories,
                                const std::vector<StrayAction>& strays) {
  ActionLabels labels;
  const ActionRule rule = rule_in_force(format, options, in);
  if (rule == ActionRule::none) return labels;
  labels.kind = rule == ActionRule::bits ? ActionKind::bits : ActionKind::classes;
  const int32_t highest = options.kind == InputKind::log ? 0 : highest_label(histories);
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
      name_values(in, format.action_columns[0], strays, labels);
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
