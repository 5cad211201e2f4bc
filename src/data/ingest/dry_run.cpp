#include "data/ingest/dry_run.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "data/ingest/suspicions.h"
#include "data/read/text_encoding.h"
#include "data/read/times.h"

namespace seqfuse::data {
namespace {

constexpr int64_t kNoSpill = int64_t{1} << 40;  // bytes: events stay in memory
constexpr int64_t kLogsShown = 5;

using Row = std::vector<std::string>;

// Characters, not bytes.
int64_t width(const std::string& text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
}

// Columns side by side, indented, each as wide as its widest value.
std::string table(const std::vector<Row>& rows) {
  std::vector<int64_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width(row[c]));
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line = " ";
    for (size_t c = 0; c < row.size(); ++c) {
      line += " " + row[c];
      line.append(static_cast<size_t>(widths[c] - width(row[c]) + 1), ' ');
    }
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

// One thread, so that rows are seen in their order.
class OneThread {
 public:
  OneThread() : before_(num_threads()) { set_num_threads(1); }
  ~OneThread() { set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

class Report {
 public:
  Report(const DatasetFormat& format, const IngestOptions& options, const ColumnSurvey& survey,
         Ingested& in)
      : format_(format), options_(options), survey_(survey), in_(in) {}

  std::string text() {
    std::string text = input() + columns();
    if (in_.events.num_events() == 0) return text;
    const EventSummary summary = summarize(in_);
    text += first_rows() + counts(summary);
    const auto found = suspicions(format_, options_, survey_, in_, summary);
    text += found.empty() ? "nothing suspicious\n" : "suspicious:\n";
    for (const std::string& sentence : found) text += "  " + sentence + "\n";
    return text;
  }

 private:
  std::string input() const {
    if (in_.logs.empty()) return "";
    const auto end = in_.logs.begin() + std::min<int64_t>(kLogsShown, std::ssize(in_.logs));
    const bool all = end == in_.logs.end();
    std::string text = fmt::format("read: {}{}", fmt::join(in_.logs.begin(), end, ", "),
                                   all ? "" : fmt::format(" and {} more", in_.logs.end() - end));
    if (!in_.all_read) text += fmt::format(" (the first {} rows)", survey_.rows());
    if (!in_.not_read.empty()) text += fmt::format("; not read: {}", fmt::join(in_.not_read, ", "));
    return text + "\n";
  }

  std::string role(const std::string& column) const {
    if (column == format_.user_column) return "user";
    if (column == format_.item_column) return "item";
    if (in_.has_time && column == format_.time_column) return "time";
    if (std::ranges::find(format_.action_columns, column) != format_.action_columns.end()) {
      return "action";
    }
    const bool is_context =
        std::ranges::find(format_.context, column, &ContextSource::column) != format_.context.end();
    return is_context ? "context" : "-";
  }

  std::string columns() const {
    std::vector<Row> rows = {{"column", "role", "type", "distinct", "blank", "first values"}};
    for (const SurveyedColumn& column : survey_.columns()) {
      Row examples;
      for (const std::string& value : column.examples) examples.push_back(excerpt(value));
      rows.push_back({excerpt(column.name), role(column.name), column.type(),
                      fmt::format("{}{}", column.is_full() ? ">= " : "", column.distinct.size()),
                      std::to_string(column.blank), fmt::format("{}", fmt::join(examples, ", "))});
    }
    return rows.size() == 1 ? "" : "columns:\n" + table(rows);
  }

  // Units per second, from the values or the format; 0 if unknown.
  int64_t units() const {
    return in_.units_per_second.value_or(
        options_.kind == InputKind::log ? format_.time_units_per_second : 0);
  }

  std::string time_text(const Time& time) const {
    if (time.fraction == Time::kBlank) return "(blank)";
    const auto date = units() > 0 ? utc_text(time.value / units()) : std::nullopt;
    return date ? *date : std::to_string(time.value);
  }

  std::string action_text(int32_t action) const {
    if (options_.kind != InputKind::log) return std::to_string(action);
    if (format_.action_rule == ActionRule::values) {
      return in_.tables.actions.text(static_cast<uint32_t>(action));
    }
    if (format_.action_rule != ActionRule::bits) return std::to_string(action);
    Row set;
    for (size_t bit = 0; bit < format_.action_columns.size(); ++bit) {
      if ((action >> bit & 1) != 0) set.push_back(format_.action_columns[bit]);
    }
    return set.empty() ? "none" : fmt::format("{}", fmt::join(set, "+"));
  }

  Row context_texts(uint32_t user) const {
    Row texts;
    for (size_t f = 0; f < format_.context.size(); ++f) {
      std::string text;
      if (in_.tables.context.empty()) {
        const auto row = in_.users.find(in_.tables.users.text(user));
        if (row != in_.users.end()) text = row->second[f];
      } else if (const auto row = in_.row_context.find(user); row != in_.row_context.end()) {
        const uint32_t code = row->second[f];
        if (code != UINT32_MAX) text = in_.tables.context[f]->text(code);
      }
      texts.push_back(text.empty() ? "(unknown)" : excerpt(text));
    }
    return texts;
  }

  std::string first_rows() const {
    Row head = {"user", "item"};
    if (in_.has_time) head.emplace_back("time");
    if (in_.has_actions) head.emplace_back("action");
    if (!in_.titles.empty()) head.emplace_back("title");
    for (const ContextSource& feature : format_.context) head.push_back(feature.name);
    std::vector<Row> rows = {head};
    for (const Event& event : in_.first_events) {
      const std::string item = in_.tables.items.text(event.item);
      Row row = {excerpt(in_.tables.users.text(event.user)), excerpt(item)};
      if (in_.has_time) row.push_back(time_text(event.point()));
      if (in_.has_actions) row.push_back(excerpt(action_text(event.action)));
      if (!in_.titles.empty()) {
        const auto title = in_.titles.find(item);
        row.push_back(title == in_.titles.end() ? "(none)" : excerpt(title->second[0]));
      }
      for (std::string& text : context_texts(event.user)) row.push_back(std::move(text));
      rows.push_back(std::move(row));
    }
    return "first events as understood:\n" + table(rows);
  }

  std::string counts(const EventSummary& summary) const {
    std::string text = fmt::format("{} users, {} items, {} events\n", summary.users, summary.items,
                                   summary.events);
    if (!summary.first) {
      return text + "no times: each user's events keep their order in the file\n";
    }
    text += fmt::format("time: {} to {}", time_text(*summary.first), time_text(*summary.last));
    int64_t likely = 1;
    const std::string unit =
        units() > 0 ? "" : likely_unit(static_cast<double>(summary.last->value), likely);
    const auto first = utc_text(summary.first->value / likely);
    const auto last = utc_text(summary.last->value / likely);
    if (!unit.empty() && first && last) {
      text += fmt::format(" (as {} since 1970: {} to {})", unit, *first, *last);
    }
    return text + "\n";
  }

  const DatasetFormat& format_;
  const IngestOptions& options_;
  const ColumnSurvey& survey_;
  Ingested& in_;
};

}  // namespace

DryRun dry_run(const DatasetFormat& format, IngestOptions options, int64_t most_bytes) {
  const OneThread one_thread;
  ColumnSurvey survey;
  options.survey = &survey;
  options.most_bytes = most_bytes;
  options.on_bad_row = BadRows::skip;
  Ingested in("", kNoSpill);
  DryRun result;
  try {
    ingest(format, options, in);
  } catch (const DataError& error) {
    result.error = error.what();
  }
  result.report = Report(format, options, survey, in).text();
  return result;
}

}  // namespace seqfuse::data
