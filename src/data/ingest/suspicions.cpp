#include "data/ingest/suspicions.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <tuple>

#include "base/error.h"
#include "data/read/field_values.h"
#include "data/read/text_encoding.h"
#include "data/read/times.h"

namespace seqfuse::data {
namespace {

constexpr int64_t kFewEvents = 20;  // too few to say anything about users and items
constexpr std::array<std::string_view, 4> kTimeWords = {"time", "date", "ts", "when"};

void check_ids(const char* what, const SurveyedColumn* column, std::vector<std::string>& out) {
  if (column == nullptr) return;
  if (column->whole_decimals > 0) {
    out.push_back(fmt::format(
        "column {}: {} {} ids are decimals such as '{}'; '12' and '12.0' are different ids (pandas "
        "turns integers into decimals where a column has blanks)",
        column->name, column->whole_decimals, what, excerpt(column->whole_decimal)));
  }
  if (column->nulls > 0) {
    out.push_back(fmt::format("column {}: {} {} ids are '{}': a missing value?", column->name,
                              column->nulls, what, excerpt(column->null)));
  }
}

std::string as_date(double time, int64_t units) {
  const auto text = utc_text(static_cast<int64_t>(std::floor(time / static_cast<double>(units))));
  return text ? *text : "beyond the year 9999";
}

void check_number_times(const SurveyedColumn& column, std::vector<std::string>& out) {
  int64_t units = 1, lowest_units = 1;
  const std::string unit = likely_unit(column.highest, units);
  const std::string lowest_unit = likely_unit(column.lowest, lowest_units);
  const auto number = [](double value) { return fmt::format("{:.0f}", value); };
  if (unit.empty()) {
    out.push_back(fmt::format(
        "column {}: {} to {} are no times since 1970; they order events, but differences between "
        "them mean nothing to a model that expects seconds",
        column.name, number(column.lowest), number(column.highest)));
    return;
  }
  if (column.lowest == 0) {
    out.push_back(fmt::format("column {}: a time is 0: a missing value?", column.name));
  } else if (!lowest_unit.empty() && lowest_unit != unit) {
    out.push_back(fmt::format("column {}: {} looks like {}, but {} like {}: mixed units?",
                              column.name, number(column.lowest), lowest_unit,
                              number(column.highest), unit));
  }
  if (units > 1) {
    out.push_back(fmt::format(
        "column {}: {} looks like {} since 1970 ({}); times are kept as they are: divide them by "
        "{} if seconds are meant",
        column.name, number(column.highest), unit, as_date(column.highest, units), units));
  }
}

void check_future(const Time& last, int64_t units, const std::string& column,
                  std::vector<std::string>& out) {
  const int64_t now = std::chrono::duration_cast<std::chrono::seconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  const int64_t seconds = last.value / units;
  if (seconds <= now + 86400) return;
  out.push_back(fmt::format("column {}: the last time, {}, is in the future", column,
                            as_date(static_cast<double>(seconds), 1)));
}

void check_times(const DatasetFormat& format, const ColumnSurvey& survey, const Ingested& in,
                 const EventSummary& summary, std::vector<std::string>& out) {
  if (!in.has_time) {
    for (const SurveyedColumn& column : survey.columns()) {
      const auto named = [&](std::string_view word) {
        return column.name.size() >= word.size() &&
               equal_ignoring_case(column.name.substr(column.name.size() - word.size()), word);
      };
      int64_t units = 1;
      const bool numbers = column.integers + column.numbers > 0 &&
                           !likely_unit(column.highest, units).empty() &&
                           std::ranges::any_of(kTimeWords, named);
      if (column.type() != "date" && !numbers) continue;
      out.push_back(
          fmt::format("no --time-column, but column {} holds times such as {}: events keep the "
                      "order of the file",
                      column.name, column.examples.front()));
    }
    return;
  }
  const SurveyedColumn* column = survey.find(format.time_column);
  int64_t units = in.units_per_second.value_or(format.time_units_per_second);
  if (units == 0 && column != nullptr && column->integers + column->numbers > 0) {
    check_number_times(*column, out);
    likely_unit(column->highest, units);
  }
  if (summary.last && units > 0) check_future(*summary.last, units, format.time_column, out);
}

void check_balance(const EventSummary& summary, std::vector<std::string>& out) {
  if (summary.events < kFewEvents) return;
  if (summary.users == summary.events) {
    out.emplace_back("each user has one event: is --user-column right?");
  }
  if (summary.items == summary.events) {
    out.emplace_back("each item has one event: is --item-column right?");
  }
  if (summary.users > 1 && 2 * summary.most_events > summary.events) {
    out.push_back(fmt::format("user '{}' has {} of {} events: people who are not logged in?",
                              excerpt(summary.busiest_user), summary.most_events, summary.events));
  }
}

void check_constant(const SurveyedColumn& column, std::vector<std::string>& out) {
  if (column.values < 2) return;
  if (column.blank == column.values) {
    out.push_back(fmt::format("column {} is blank in all rows", column.name));
  } else if (column.blank == 0 && column.distinct.size() == 1) {
    out.push_back(fmt::format("column {} is '{}' in all rows", column.name,
                              excerpt(column.examples.front())));
  }
}

}  // namespace

std::string likely_unit(double time, int64_t& units) {
  constexpr std::array<const char*, 4> kUnits = {"seconds", "milliseconds", "microseconds",
                                                 "nanoseconds"};
  double first = 1e8;  // seconds in 1973
  units = 1;
  for (const char* unit : kUnits) {
    if (time < first) return "";
    if (time < first * 1000) return unit;
    first *= 1000;
    units *= 1000;
  }
  units = 1;
  return "";
}

EventSummary summarize(Ingested& in) {
  in.events.finish();
  EventSummary summary;
  summary.events = in.events.num_events();
  summary.users = in.events.num_users();
  summary.items = in.tables.items.size();
  std::vector<Event> events;
  for (int64_t position = 0; position < summary.users; ++position) {
    in.events.load(position, position + 1, events);
    if (std::ssize(events) > summary.most_events) {
      summary.most_events = std::ssize(events);
      summary.busiest_user = in.tables.users.text(in.events.user_code(position));
    }
    const auto key = [](const Event& e) {
      return std::tuple(e.time, e.fraction, e.item, e.action);
    };
    std::ranges::sort(events, {}, key);
    for (size_t i = 1; i < events.size(); ++i) {
      summary.duplicates += key(events[i]) == key(events[i - 1]) ? 1 : 0;
    }
    for (const Event& event : events) {
      if (!in.has_time || event.fraction == Time::kBlank) continue;
      summary.first = std::min(summary.first.value_or(event.point()), event.point());
      summary.last = std::max(summary.last.value_or(event.point()), event.point());
    }
  }
  return summary;
}

std::vector<std::string> suspicions(const DatasetFormat& format, const IngestOptions& options,
                                    const ColumnSurvey& survey, const Ingested& in,
                                    const EventSummary& summary) {
  std::vector<std::string> out;
  if (in.bad_rows > 0) {
    out.push_back(fmt::format("{} of {} rows are malformed; the first: {}", in.bad_rows, in.rows,
                              in.bad_examples.front()));
  }
  check_ids("user", survey.find(format.user_column), out);
  check_ids("item", survey.find(format.item_column), out);
  check_times(format, survey, in, summary, out);
  if (summary.duplicates > 0 && (in.has_time || !format.action_columns.empty())) {
    out.push_back(fmt::format(
        "{} events equal an earlier one in user, item, action and time: --deduplicate drops them",
        summary.duplicates));
  }
  check_balance(summary, out);
  if (options.kind == InputKind::processed_seqs) return out;
  for (const SurveyedColumn& column : survey.columns()) check_constant(column, out);
  return out;
}

}  // namespace seqfuse::data
