#include "data/ingest/event_rows.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "data/read/field_values.h"
#include "data/read/text_encoding.h"

namespace seqfuse::data {
namespace {

constexpr size_t kBadRowsKept = 5;

// The shortest text that parses to this number, so that "4" and "4.0" are the same value.
std::string canonical_number(double number) {
  if (number == std::floor(number) && std::abs(number) < 0x1p53) {
    return std::to_string(static_cast<int64_t>(number));
  }
  return fmt::format("{}", number);
}

// Splits "[924, 919]" into its elements, without quotes around them.
bool split_list(std::string_view text, std::vector<std::string_view>& elements) {
  elements.clear();
  text = trim(text);
  if (!text.starts_with('[') || !text.ends_with(']') || text.size() < 2) return false;
  text = trim(text.substr(1, text.size() - 2));
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    std::string_view element = trim(text.substr(0, comma));
    if (element.size() >= 2 && (element[0] == '"' || element[0] == '\'') &&
        element.back() == element[0]) {
      element = element.substr(1, element.size() - 2);
    }
    elements.push_back(element);
    text.remove_prefix(std::min(text.size(), comma + 1));
  }
  return true;
}

}  // namespace

void ParsedRows::clear() {
  lines = bad_count = 0;
  events.clear();
  context.clear();
  bad.clear();
  has_number_times = has_unit_times = false;
  words.clear();
}

RowMapper::RowMapper(const EventColumns& columns, IdTables& tables)
    : columns_(columns), tables_(tables), context_(columns.context.size()) {}

std::string RowMapper::bad_field(int column, std::string_view value,
                                 std::string_view expected) const {
  return fmt::format("column {} is '{}'; expected {}", columns_.names[static_cast<size_t>(column)],
                     excerpt(value), expected);
}

void RowMapper::add_bad(std::string reason, int64_t line, ParsedRows& out) {
  ++out.bad_count;
  if (out.bad.size() < kBadRowsKept) out.bad.push_back({line, std::move(reason)});
}

bool RowMapper::map_time(std::string_view field, ParsedRows& out, Event& event) {
  if (trim(field).empty()) {
    event.fraction = Time::kBlank;
    if (columns_.blank_time == BlankTime::between) return true;
    reason_ =
        fmt::format("column {} is blank; if rows are in order, --blank-time between fills it in",
                    columns_.names[static_cast<size_t>(columns_.time)]);
    return false;
  }
  std::optional<Time> time;
  if (columns_.time_format) {
    time = columns_.time_format->parse(field, columns_.units_per_second);
    if (!time) {
      reason_ =
          bad_field(columns_.time, field,
                    fmt::format("a time in --time-format '{}', such as {}",
                                columns_.time_format->text(), columns_.time_format->example()));
      return false;
    }
    out.has_unit_times = true;
  } else if ((time = parse_time_number(field))) {
    out.has_number_times = true;
  } else if ((time = parse_iso8601(field, columns_.units_per_second))) {
    out.has_unit_times = true;
  } else {
    reason_ = bad_field(columns_.time, field,
                        "a number or an ISO 8601 date and time; --time-format describes others");
    return false;
  }
  event.time = time->value;
  event.fraction = time->fraction;
  return true;
}

void RowMapper::note_word(uint32_t code, int64_t line, ParsedRows& out) {
  if (code >= words_seen_.size()) words_seen_.resize(code + 1);
  if (words_seen_[code] || num_words_ > kMostLabels) return;
  words_seen_[code] = true;
  ++num_words_;
  out.words.push_back({code, line});
}

bool RowMapper::map_action(std::span<const std::string_view> fields, int64_t line, ParsedRows& out,
                           int32_t& action) {
  if (columns_.action_rule == ActionRule::none) return true;
  if (columns_.action_rule == ActionRule::bits) {
    for (size_t k = 0; k < columns_.actions.size(); ++k) {
      const std::string_view field = fields[static_cast<size_t>(columns_.actions[k])];
      const auto set = parse_flag(field);
      if (!set) {
        reason_ = bad_field(columns_.actions[k], field, "true or false, or a number (0: no)");
        return false;
      }
      if (*set) action |= 1 << k;
    }
    return true;
  }
  const int column = columns_.actions[0];
  const std::string_view field = trim(fields[static_cast<size_t>(column)]);
  if (columns_.action_rule == ActionRule::values) {
    if (field.empty()) {
      reason_ = fmt::format("column {} is blank", columns_.names[static_cast<size_t>(column)]);
      return false;
    }
    uint32_t code = 0;
    if (const auto integer = parse_canonical_int64(field)) {
      code = tables_.actions.code(*integer, actions_);
    } else if (const auto number = parse_double(field)) {
      code = tables_.actions.code(canonical_number(*number), actions_);
    } else {
      code = tables_.actions.code(field, actions_);
      note_word(code, line, out);
    }
    action = static_cast<int32_t>(code);
    return true;
  }
  const auto number = parse_double(field);
  const double label = !number                                           ? -1
                       : columns_.action_rule == ActionRule::half_stars  ? 2 * *number - 1
                       : columns_.action_rule == ActionRule::whole_stars ? *number - 1
                                                                         : *number;
  const double end = columns_.action_rule == ActionRule::half_stars    ? 10
                     : columns_.action_rule == ActionRule::whole_stars ? 5
                                                                       : 0x1p31;
  if (!(label >= 0) || label >= end || label != std::floor(label)) {
    reason_ =
        bad_field(column, field,
                  columns_.action_rule == ActionRule::half_stars    ? "a rating 0.5, 1, ... 5"
                  : columns_.action_rule == ActionRule::whole_stars ? "a rating 1, 2, ... 5"
                                                                    : "an integer label >= 0");
    return false;
  }
  action = static_cast<int32_t>(label);
  return true;
}

void RowMapper::add_context(std::span<const std::string_view> fields, uint32_t user,
                            ParsedRows& out) {
  if (columns_.context.empty()) return;
  ContextRow row{user, {}};
  for (size_t f = 0; f < columns_.context.size(); ++f) {
    const std::string_view value = trim(fields[static_cast<size_t>(columns_.context[f])]);
    row.values.push_back(value.empty() ? UINT32_MAX : tables_.context[f]->code(value, context_[f]));
  }
  if (out.context.empty() || !(out.context.back() == row)) out.context.push_back(std::move(row));
}

std::string RowMapper::wrong_count(size_t fields) const {
  return fmt::format("expected {} columns, found {}",
                     columns_.names.size() - columns_.constants.size(), fields);
}

std::span<const std::string_view> RowMapper::with_constants(
    std::span<const std::string_view> fields) {
  row_.assign(fields.begin(), fields.end());
  row_.insert(row_.end(), columns_.constants.begin(), columns_.constants.end());
  return row_;
}

void RowMapper::add(std::span<const std::string_view> fields, int64_t line, ParsedRows& out) {
  if (fields.size() + columns_.constants.size() != columns_.names.size()) {
    return add_bad(wrong_count(fields.size()), line, out);
  }
  map(columns_.constants.empty() ? fields : with_constants(fields), line, out);
}

void RowMapper::map(std::span<const std::string_view> fields, int64_t line, ParsedRows& out) {
  const std::string_view user = trim(fields[static_cast<size_t>(columns_.user)]);
  const std::string_view item = trim(fields[static_cast<size_t>(columns_.item)]);
  if (user.empty() || item.empty()) {
    const int column = user.empty() ? columns_.user : columns_.item;
    return add_bad(fmt::format("column {} is blank", columns_.names[static_cast<size_t>(column)]),
                   line, out);
  }
  Event event{};
  if (columns_.time >= 0 && !map_time(fields[static_cast<size_t>(columns_.time)], out, event)) {
    return add_bad(std::move(reason_), line, out);
  }
  if (!map_action(fields, line, out, event.action)) {
    return add_bad(std::move(reason_), line, out);
  }
  event.user = tables_.users.code(user, users_);
  add_context(fields, event.user, out);
  out.events.push_back(event);
  map_item(item, out);
}

void RowMapper::map_item(std::string_view field, ParsedRows& out) {
  const auto number = parse_canonical_int64(field);
  if (!number) {
    out.events.back().item = tables_.items.code(field, items_);
    return;
  }
  tables_.items.prefetch(*number);
  PendingItem& slot = pending_[next_pending_++ % kPendingItems];
  resolve(slot, out);
  slot = {out.events.size() - 1, *number, true};
}

void RowMapper::resolve(PendingItem& item, ParsedRows& out) {
  if (std::exchange(item.waiting, false))
    out.events[item.event].item = tables_.items.code(item.id, items_);
}

void RowMapper::finish(ParsedRows& out) {
  for (PendingItem& item : pending_) resolve(item, out);
}

void RowMapper::add_items(std::span<const std::string_view> words, int64_t line, ParsedRows& out) {
  for (const std::string_view item : words.subspan(1)) {
    const std::string_view row[] = {words[0], item};
    add(row, line, out);
  }
}

void RowMapper::add_sequence(std::span<const std::string_view> fields, int64_t line,
                             ParsedRows& out) {
  if (fields.size() + columns_.constants.size() != columns_.names.size()) {
    return add_bad(wrong_count(fields.size()), line, out);
  }
  fields = with_constants(fields);
  const int list_columns[3] = {columns_.item, columns_.actions.empty() ? -1 : columns_.actions[0],
                               columns_.time};
  for (int k = 0; k < 3; ++k) {
    if (list_columns[k] < 0) continue;
    const std::string_view field = fields[static_cast<size_t>(list_columns[k])];
    if (!split_list(field, lists_[k])) {
      return add_bad(bad_field(list_columns[k], field, "a list [1, 2, 3]"), line, out);
    }
    if (lists_[k].size() != lists_[0].size()) {
      return add_bad(
          fmt::format("column {} has {} elements but column {} has {}",
                      columns_.names[static_cast<size_t>(list_columns[k])], lists_[k].size(),
                      columns_.names[static_cast<size_t>(columns_.item)], lists_[0].size()),
          line, out);
    }
  }
  const auto set = [&](int k, size_t i) {
    if (list_columns[k] >= 0) row_[static_cast<size_t>(list_columns[k])] = lists_[k][i];
  };
  finish(out);
  const int64_t bad_before = out.bad_count;
  const size_t events_before = out.events.size();
  for (size_t i = 0; i < lists_[0].size() && out.bad_count == bad_before; ++i) {
    for (int k = 0; k < 3; ++k) set(k, i);
    map(row_, line, out);
  }
  finish(out);
  if (out.bad_count > bad_before) out.events.resize(events_before);
}

}  // namespace seqfuse::data
