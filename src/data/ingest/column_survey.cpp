#include "data/ingest/column_survey.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/hash.h"
#include "data/read/field_values.h"
#include "data/read/times.h"

namespace seqfuse::data {
namespace {

constexpr std::array<std::string_view, 6> kNulls = {"nan", "na", "n/a", "null", "none", "nil"};

void note_number(double number, SurveyedColumn& column) {
  const bool first = column.integers + column.numbers == 0;
  column.lowest = first ? number : std::min(column.lowest, number);
  column.highest = first ? number : std::max(column.highest, number);
}

void note(std::string_view value, SurveyedColumn& column) {
  ++column.values;
  value = trim(value);
  if (value.empty()) {
    ++column.blank;
    return;
  }
  if (!column.is_full()) {
    const bool is_new = column.distinct.insert(hash64(value)).second;
    if (is_new && column.examples.size() < SurveyedColumn::kExamples) {
      column.examples.emplace_back(value);
    }
  }
  const auto is_value = [&](std::string_view word) { return equal_ignoring_case(value, word); };
  if (const auto integer = parse_canonical_int64(value)) {
    note_number(static_cast<double>(*integer), column);
    ++column.integers;
  } else if (const auto number = parse_double(value)) {
    note_number(*number, column);
    ++column.numbers;
    const bool decimal = value.find_first_of(".eE") != std::string_view::npos;
    if (decimal && *number == std::floor(*number) && column.whole_decimals++ == 0) {
      column.whole_decimal = value;
    }
  } else if (parse_iso8601(value)) {
    ++column.dates;
  } else if (std::ranges::any_of(kNulls, is_value) && column.nulls++ == 0) {
    column.null = value;
  }
}

}  // namespace

std::string SurveyedColumn::type() const {
  const int64_t filled = values - blank;
  if (filled == 0) return "blank";
  if (integers == filled) return "integer";
  if (integers + numbers == filled) return "number";
  if (dates == filled) return "date";
  return integers + numbers + dates == 0 ? "text" : "mixed";
}

SurveyedColumn& ColumnSurvey::column(size_t at, const std::string& name) {
  if (at < columns_.size() && columns_[at].name == name) return columns_[at];
  const auto found = std::ranges::find(columns_, name, &SurveyedColumn::name);
  if (found != columns_.end()) return *found;
  columns_.emplace_back().name = name;
  return columns_.back();
}

void ColumnSurvey::add(std::span<const std::string> names,
                       std::span<const std::string_view> fields) {
  ++rows_;
  for (size_t i = 0; i < std::min(names.size(), fields.size()); ++i) {
    note(fields[i], column(i, names[i]));
  }
}

void ColumnSurvey::add(std::span<const std::string> names, std::span<const std::string_view> fields,
                       std::span<const int> which) {
  ++rows_;
  for (size_t i = 0; i < which.size(); ++i) {
    const auto c = static_cast<size_t>(which[i]);
    note(fields[c], column(i, names[c]));
  }
}

const SurveyedColumn* ColumnSurvey::find(std::string_view name) const {
  const auto found = std::ranges::find(columns_, name, &SurveyedColumn::name);
  return found == columns_.end() ? nullptr : &*found;
}

}  // namespace seqfuse::data
