#include "tuning/measurement_csv.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "data/read/csv.h"

namespace seqfuse::tuning {
namespace {

constexpr std::array<std::string_view, 21> kColumns{
    "model",        "hidden",       "heads",  "inner",  "layers", "batch",   "seq",
    "mask",         "mask_density", "dtype",  "scheme", "first",  "last",    "config",
    "milliseconds", "predicted",    "status", "card",   "driver", "version", "date"};

std::string quoted(const std::string& text) {
  if (text.find_first_of("\",\r\n") == std::string::npos) return text;
  std::string result = "\"";
  for (const char c : text) result += c == '"' ? std::string("\"\"") : std::string(1, c);
  return result + '"';
}

template <class T>
std::string or_empty(const std::optional<T>& value) {
  return value ? fmt::format("{}", *value) : "";
}

std::string line_of(const Measurement& m) {
  const Setting& s = m.setting;
  std::optional<int> first, last;
  if (m.segment) {
    first = m.segment->first;
    last = m.segment->last;
  }
  return fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n",
                     quoted(s.model), s.hidden, s.heads, s.inner, s.layers, s.batch, s.seq,
                     quoted(s.mask), s.mask_density, quoted(s.dtype), or_empty(m.scheme),
                     or_empty(first), or_empty(last), quoted(m.config), or_empty(m.milliseconds),
                     or_empty(m.predicted), name_of(m.status), quoted(m.origin.card),
                     quoted(m.origin.driver), quoted(m.origin.version), quoted(m.date));
}

// The fields of one row, by the names of columns.
class CsvRow {
 public:
  CsvRow(std::span<const std::string_view> header, std::span<const std::string_view> fields)
      : header_(header), fields_(fields) {
    SEQFUSE_CHECK(fields.size() == header.size(), "{} fields; expected {}, as in the header",
                  fields.size(), header.size());
  }

  std::string text(std::string_view column) const { return std::string(field(column)); }

  template <class T>
  T number(std::string_view column) const {
    const std::string_view from = field(column);
    T value{};
    const auto [stop, error] = std::from_chars(from.data(), from.data() + from.size(), value);
    SEQFUSE_CHECK(error == std::errc() && stop == from.data() + from.size(),
                  "{} is '{}'; expected a number", column, from);
    return value;
  }

  template <class T>
  std::optional<T> optional_number(std::string_view column) const {
    if (field(column).empty()) return std::nullopt;
    return number<T>(column);
  }

 private:
  std::string_view field(std::string_view column) const {
    const auto at = std::find(header_.begin(), header_.end(), column);
    return fields_[static_cast<size_t>(at - header_.begin())];
  }

  std::span<const std::string_view> header_, fields_;
};

Measurement measurement_of(const CsvRow& row) {
  Measurement m;
  m.setting = {.model = row.text("model"),
               .hidden = row.number<int64_t>("hidden"),
               .heads = row.number<int64_t>("heads"),
               .inner = row.number<int64_t>("inner"),
               .layers = row.number<int64_t>("layers"),
               .batch = row.number<int64_t>("batch"),
               .seq = row.number<int64_t>("seq"),
               .mask = row.text("mask"),
               .mask_density = row.number<double>("mask_density"),
               .dtype = row.text("dtype")};
  m.scheme = row.optional_number<int64_t>("scheme");
  const auto first = row.optional_number<int>("first"), last = row.optional_number<int>("last");
  SEQFUSE_CHECK(first.has_value() == last.has_value(), "it has only one end of a segment");
  if (first) m.segment = {*first, *last};
  m.config = row.text("config");
  m.milliseconds = row.optional_number<double>("milliseconds");
  m.predicted = row.optional_number<double>("predicted");
  const auto status = status_of_name(row.text("status"));
  SEQFUSE_CHECK(status.has_value(), "status is '{}'; expected ok, wrong, failed or timeout",
                row.text("status"));
  m.status = *status;
  m.origin = {row.text("card"), row.text("driver"), row.text("version")};
  m.date = row.text("date");
  check(m);
  return m;
}

// Throws Error.
void check_header(std::span<const std::string_view> header) {
  for (const std::string_view column : kColumns) {
    const auto times = std::count(header.begin(), header.end(), column);
    SEQFUSE_CHECK(times == 1, "column {} is there {} times; expected once", column, times);
  }
  for (const std::string_view column : header) {
    const bool known =
        column == "id" || std::find(kColumns.begin(), kColumns.end(), column) != kColumns.end();
    SEQFUSE_CHECK(known, "unknown column '{}'", column);
  }
}

}  // namespace

bool is_measurement_csv(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  return line.find("mask_density") != std::string_view::npos &&
         line.find("milliseconds") != std::string_view::npos;
}

void write_csv(const std::filesystem::path& file, std::span<const Measurement> measurements) {
  std::string text = fmt::format("{}\n", fmt::join(kColumns, ","));
  for (const Measurement& measurement : measurements) text += line_of(measurement);
  write_file_atomically(file, text);
}

std::vector<Measurement> read_csv(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  data::RowSplitter rows(text, {});
  SEQFUSE_CHECK_AS(DataError, is_measurement_csv(text) && rows.next(),
                   "{}: it does not begin with the names of columns; expected {}", file.string(),
                   fmt::join(kColumns, ","));
  std::vector<Measurement> result;
  int64_t line = 1;
  try {
    const std::vector<std::string> names(rows.fields().begin(), rows.fields().end());
    const std::vector<std::string_view> header(names.begin(), names.end());
    check_header(header);
    while (rows.next()) {
      line = rows.lines_before() + 1;
      SEQFUSE_CHECK(rows.malformed() == nullptr, "{}", rows.malformed());
      result.push_back(measurement_of(CsvRow(header, rows.fields())));
    }
  } catch (const Error& error) {
    throw_error<DataError>("{}:{}: {}", file.string(), line, error.what());
  }
  return result;
}

}  // namespace seqfuse::tuning
