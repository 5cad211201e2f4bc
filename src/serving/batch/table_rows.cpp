#include "serving/batch/table_rows.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/read/csv.h"
#include "data/read/field_values.h"
#include "data/read/text_chunks.h"
#include "data/read/text_encoding.h"
#include "serving/batch/file_stream.h"
#include "serving/batch/parquet_table_rows.h"

namespace seqfuse::serving {
namespace {

std::string shown_name(const std::string& file) {
  return file == "-" ? "standard input" : file;
}

// Rows of text: delimited fields, or whole lines.
class TextRows final : public TableRows {
 public:
  TextRows(const std::string& file, TableFormat format, const std::string& delimiter,
           std::function<void()> interrupted)
      : name_(shown_name(file)),
        dialect_(dialect_of(format, delimiter)),
        stream_(file, std::move(interrupted)),
        chunks_(stream_, name_, dialect_),
        whole_lines_(format == TableFormat::lines || format == TableFormat::jsonl) {
    if (whole_lines_) {
      names_ = {""};
      return;
    }
    names_ = chunks_.header();
    if (names_.empty()) {
      throw_error<DataError>("{} is empty: its first line must name the columns", name_);
    }
    lines_ = chunks_.header_lines();
  }

  const std::vector<std::string>& names() const override { return names_; }

  bool next() override {
    do {
      if (!next_row()) return false;
    } while (whole_lines_ && data::trim(rows_->row()).empty());
    return true;
  }

  std::optional<std::string> text(int column) const override {
    const std::string_view field = data::trim(rows_->fields()[static_cast<size_t>(column)]);
    if (field.empty()) return std::nullopt;
    return std::string(field);
  }

  std::optional<Texts> list(int column) const override {
    const auto field = text(column);
    if (!field) return std::nullopt;
    return split_list(*field);
  }

  std::string where() const override {
    return fmt::format("{}:{}", name_, lines_ + (rows_ ? rows_->lines_before() + 1 : 0));
  }

  std::optional<double> done() const override {
    if (stream_.size() == 0) return std::nullopt;
    const auto left = rows_ ? static_cast<int64_t>(rows_->rest().size()) : 0;
    const int64_t read = before_ + static_cast<int64_t>(chunk_.size) - left;
    return std::min(1.0, static_cast<double>(read) / static_cast<double>(stream_.size()));
  }

 private:
  // Reads the next row, also a blank one.
  bool next_row() {
    while (!rows_ || !rows_->next()) {
      if (rows_) lines_ += rows_->lines_after();
      before_ += static_cast<int64_t>(chunk_.size);
      rows_.reset();
      if (!chunks_.next(chunk_)) return false;
      rows_.emplace(chunk_.text(), dialect_);
      readable_ = data::is_readable(chunk_.text());
    }
    if (rows_->malformed() != nullptr)
      throw_error<DataError>("{}: {}", where(), rows_->malformed());
    if (!readable_) {
      const std::string problem = data::unreadable(rows_->row());
      if (!problem.empty()) throw_error<DataError>("{}: {}", where(), problem);
    }
    if (rows_->fields().size() != names_.size()) {
      throw_error<DataError>("{}: {} fields, but the first line names {} columns", where(),
                             rows_->fields().size(), names_.size());
    }
    return true;
  }

  static data::CsvDialect dialect_of(TableFormat format, const std::string& delimiter) {
    switch (format) {
      case TableFormat::csv:
        return delimiter.empty() ? data::CsvDialect() : data::CsvDialect{.delimiter = delimiter};
      case TableFormat::tsv:
        return {.delimiter = "\t"};
      default:
        return {.delimiter = "\n", .quotes = false};  // no line contains it
    }
  }

  std::string name_;
  data::CsvDialect dialect_;
  FileStream stream_;
  data::TextChunks chunks_;
  bool whole_lines_;
  std::vector<std::string> names_;
  data::TextChunk chunk_;
  bool readable_ = true;  // the chunk is UTF-8
  std::optional<data::RowSplitter> rows_;
  int64_t lines_ = 0;   // before the chunk
  int64_t before_ = 0;  // bytes before the chunk, without those of the header
};

struct Ending {
  const char* name;
  TableFormat format;
};
constexpr Ending kEndings[] = {{".txt", TableFormat::lines},    {".csv", TableFormat::csv},
                               {".tsv", TableFormat::tsv},      {".jsonl", TableFormat::jsonl},
                               {".ndjson", TableFormat::jsonl}, {".parquet", TableFormat::parquet}};

}  // namespace

TableFormat table_format(const std::string& file, const std::string& given) {
  constexpr const char* kNames = "lines (an id each), csv, tsv, jsonl or parquet";
  const std::string ending = std::filesystem::path(file).extension().string();
  if (given == "lines" || (given.empty() && ending.empty() && file != "-")) {
    return TableFormat::lines;
  }
  for (const Ending& known : kEndings) {
    if (given.empty() ? data::equal_ignoring_case(ending, known.name) : known.name == "." + given) {
      return known.format;
    }
  }
  if (!given.empty()) throw_error<UsageError>("--format is '{}': expected {}", given, kNames);
  if (file == "-") {
    throw_error<UsageError>("standard input has no name that tells its format: give --format {}",
                            kNames);
  }
  throw_error<UsageError>(
      "the name of {} does not tell its format: end it in .txt, .csv, .tsv, .jsonl or .parquet, or "
      "give --format",
      file);
}

std::string other_delimiter(const std::vector<std::string>& names) {
  if (names.size() != 1) return "";
  for (const auto& [character, name] : {std::pair(';', "semicolons, ';'"),
                                        {'\t', "tabs, '\\t'"},
                                        {'|', "bars, '|'"},
                                        {',', "commas, ','"}}) {
    if (names[0].find(character) != std::string::npos) return name;
  }
  return "";
}

std::unique_ptr<TableRows> open_table_rows(const std::string& file, TableFormat format,
                                           const std::string& delimiter,
                                           std::function<void()> interrupted) {
  if (!delimiter.empty() && format != TableFormat::csv) {
    throw_error<UsageError>("--delimiter is for CSV files, which {} is not: leave it out",
                            shown_name(file));
  }
  const std::string separator = delimiter == "\\t" ? "\t" : delimiter;
  if (separator.size() > 2 || separator.find_first_of("\"\r\n") != std::string::npos) {
    throw_error<UsageError>(
        "--delimiter '{}': expected one or two characters, no quotes or newlines", delimiter);
  }
  std::error_code ignored;
  if (file != "-" && !std::filesystem::exists(file, ignored)) {
    throw_error<DataError>("{} does not exist", file);
  }
  if (std::filesystem::is_directory(file, ignored)) {
    throw_error<DataError>("{} is a folder: expected a file", file);
  }
  if (format != TableFormat::parquet) {
    return std::make_unique<TextRows>(file, format, separator, std::move(interrupted));
  }
  if (file == "-") {
    throw_error<UsageError>(
        "Parquet cannot be read from standard input, because its end has to be read first: give a "
        "file");
  }
  return open_parquet_table_rows(file);
}

}  // namespace seqfuse::serving
