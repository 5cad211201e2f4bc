#include "cli/preprocess_flags.h"

#include <fmt/ranges.h>

#include <charconv>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "data/ingest/row_reader.h"
#include "data/read/input.h"

namespace seqfuse::cli {
namespace {

using Flags = PreprocessFlags;

void declare_columns(CLI::App& app, Flags& f) {
  const char* csv = "csv, sasrec, recbole";
  app.add_option("--user-column", f.user_column, "default user_id")->group(csv);
  app.add_option("--item-column", f.item_column, "default item_id")->group(csv);
  app.add_option("--time-column", f.time_column, "none: file order")->group(csv);
  app.add_option("--time-format", f.time_format, "such as '%d.%m.%Y %H:%M'")->group(csv);
  app.add_option("--order", f.order, "file: it is the order of time")
      ->check(CLI::IsMember({"file", "time"}))
      ->group(csv);
  app.add_option("--action-column", f.action_columns, "values become labels; several, a,b: bits")
      ->delimiter(',')
      ->group(csv);
  app.add_option("--context-columns", f.context_columns, "features of the user")
      ->delimiter(',')
      ->group(csv);
  app.add_option("--delimiter", f.delimiter, "default ',', tab for .tsv")->group(csv);
  app.add_option("--quote", f.quote, "double (default) or none")
      ->check(CLI::IsMember({"double", "none"}))
      ->group(csv);
  app.add_option("--comment", f.comment, "skip lines that begin with this")->group(csv);
  app.add_option("--header", f.header, "column names, if the file has no header")
      ->delimiter(',')
      ->group(csv);
  app.add_option("--title-file", f.title_file, "name of the CSV file of titles in --input")
      ->check(kPath)
      ->group(csv);
  app.add_option("--title-delimiter", f.title_delimiter, "default: as --delimiter")->group(csv);
  app.add_option("--title-column", f.title_column, "default title")->group(csv);
}

int64_t parse_bytes(const std::string& text) {
  double value = 0;
  const char* end = std::from_chars(text.data(), text.data() + text.size(), value).ptr;
  const std::string_view unit(end, text.data() + text.size());
  const double scale = unit == "GB" || unit == "G"   ? 0x1p30
                       : unit == "MB" || unit == "M" ? 0x1p20
                                                     : 0;
  if (scale == 0 || value * scale < 0x1p26) {
    throw_error<UsageError>("--memory-limit {}: expected at least 64MB, such as 512MB or 1GB",
                            text);
  }
  return static_cast<int64_t>(value * scale);
}

// Without a delimiter, each file's extension decides.
void set_delimiter(const char* flag, const std::string& delimiter, data::TableFormat& table) {
  table.tabs_by_ending = delimiter.empty();
  if (delimiter.empty()) return;
  table.dialect.delimiter = delimiter == "\\t" ? "\t" : delimiter;
  const bool usable = table.dialect.delimiter.find_first_of("\"\r\n") == std::string::npos;
  if (table.dialect.delimiter.size() > 2 || !usable) {
    throw_error<UsageError>("{} '{}': expected one or two characters, no quotes or newlines", flag,
                            delimiter);
  }
}

data::TableFormat table_of(const Flags& f, const char* flag, const std::string& delimiter) {
  data::TableFormat table;
  set_delimiter(flag, delimiter, table);
  table.dialect.quotes = f.quote == "double";
  if (f.comment.find_first_of("\"\r\n") != std::string::npos) {
    throw_error<UsageError>("--comment '{}': expected characters other than quotes and newlines",
                            f.comment);
  }
  table.dialect.comment = f.comment;
  return table;
}

void set_context(const Flags& f, data::DatasetFormat& format) {
  for (const std::string& column : f.context_columns) {
    if (column == f.user_column) {
      format.user_id_feature = true;
    } else {
      format.context.push_back({column, column});
    }
  }
}

void set_titles(const Flags& f, data::DatasetFormat& format) {
  if (f.title_file.empty()) return;
  const std::string& delimiter = f.title_delimiter.empty() ? f.delimiter : f.title_delimiter;
  format.titles = data::TitleTable{
      {data::without_compression(std::filesystem::path(f.title_file).filename().string()), "", ""},
      table_of(f, "--title-delimiter", delimiter),
      f.item_column,
      f.title_column.empty() ? "title" : f.title_column,
      f.titles_if_present};
}

void set_time(const Flags& f, data::DatasetFormat& format) {
  if (f.order == "file" && !f.time_column.empty()) {
    throw_error<UsageError>(
        "--order file and --time-column {}: file order does without times; leave one out",
        f.time_column);
  }
  if (f.order == "time" && f.time_column.empty() && f.format != "recbole") {
    throw_error<UsageError>("--order time: give --time-column");
  }
  format.time_column = f.time_column;
}

data::DatasetFormat lines_format(const Flags& f, data::DatasetFormat format) {
  if (!f.time_column.empty() || !f.action_columns.empty() || !format.context.empty() ||
      !f.header.empty() || f.order == "time") {
    throw_error<UsageError>(
        "--format sasrec: lines hold a user and items only; leave out --time-column, "
        "--action-column, --header, --order time and --context-columns (but for the user column)");
  }
  return data::item_lines_format(std::move(format), !f.delimiter.empty());
}

data::DatasetFormat recbole_format(const Flags& f, data::DatasetFormat format) {
  if (!f.title_file.empty() || !f.header.empty()) {
    throw_error<UsageError>(
        "--format recbole: titles come from the .item file (--title-column), names from headers; "
        "leave out --title-file and --header");
  }
  if (f.time_column.empty() && f.order != "file") {
    format.time_column = "timestamp";
    format.time_if_present = f.order.empty();
  }
  return data::atomic_files_format(std::move(format), !f.delimiter.empty(), f.title_column,
                                   f.titles_if_present);
}

data::DatasetFormat csv_format(const Flags& f) {
  data::DatasetFormat format;
  format.name = "csv";
  format.from_flags = true;
  format.table = table_of(f, "--delimiter", f.delimiter);
  format.table.columns = f.header;
  format.user_column = f.user_column;
  format.item_column = f.item_column;
  format.action_columns = f.action_columns;
  format.action_rule = f.action_columns.empty()       ? data::ActionRule::none
                       : f.action_columns.size() == 1 ? data::ActionRule::values
                                                      : data::ActionRule::bits;
  if (f.action_columns.size() > 20) throw_error<UsageError>("--action-column: at most 20 bits");
  set_time(f, format);
  set_context(f, format);
  set_titles(f, format);
  if (f.format == "sasrec") return lines_format(f, std::move(format));
  if (f.format == "recbole") return recbole_format(f, std::move(format));
  return format;
}

}  // namespace

void declare_preprocess_flags(CLI::App& app, Flags& f) {
  app.add_option(
      "--dataset-name", f.dataset_name,
      "ml-100k, ml-latest-small, ml-1m, ml-20m, kuairand-pure, -1k, -27k, csv (default)");
  app.add_option("--input", f.input, "folder, archive, .gz, .xz, .parquet, .jsonl or text file")
      ->required()
      ->check(kPath);
  app.add_option("--output", f.output, "dataset directory to create")->check(kPath);
  app.add_flag("--force", f.force, "replace an existing dataset directory");
  app.add_flag("--dry-run", f.dry_run, "look at the first rows; write nothing");
  app.add_option("--extend", f.extend, "add to this dataset; without --output: in place")
      ->check(kPath);
  app.add_option("--format", f.format, "log, sasrec, recbole, or processed-seqs (one row per user)")
      ->check(CLI::IsMember({"log", "sasrec", "recbole", "processed-seqs"}));
  app.add_option("--write-processed-seqs", f.write_processed_seqs,
                 "also write processed_seqs.csv here")
      ->check(kPath);
  app.add_option("--memory-limit", f.memory_limit, "for events: 512MB, 1GB (default), 16GB");
  app.add_option("--threads", f.threads, "default: all CPUs")->check(whole_number(1));
  app.add_option("--on-bad-row", f.on_bad_row, "error (default) or skip")
      ->check(CLI::IsMember({"error", "skip"}));
  app.add_option("--join", f.join,
                 "KuaiRand: inner (default, as published) drops users missing from a file; outer "
                 "keeps them")
      ->check(CLI::IsMember({"inner", "outer"}));
  app.add_flag("--deduplicate", f.deduplicate, "drop repeated events");
  app.add_option("--min-user-events", f.min_user_events)->check(whole_number(1));
  app.add_option("--min-item-events", f.min_item_events)->check(whole_number(1));
  app.add_flag("--iterative", f.iterative, "until no user or item has fewer (k-core)");
  app.add_flag("--given-split", f.given_split, "train, valid and test files, as leave_one_out");
  app.add_option("--blank-time", f.blank_time,
                 "error (default), or between neighbours in file order")
      ->check(CLI::IsMember({"error", "between"}));
  app.add_option("--encoding", f.encoding, "of text files: utf-8 (default), latin1, windows-1252")
      ->check(CLI::IsMember({"utf-8", "latin1", "windows-1252"}));
  declare_columns(app, f);
}

void adopt_record(const CLI::App& app, const data::ManifestFile& manifest, Flags& f) {
  const data::IngestRecord& record = *manifest.ingest;
  const auto adopt = [&](const char* flag, auto& value, const auto& recorded) {
    if (app.count(flag) > 0 && value != recorded) {
      throw_error<UsageError>(
          "{} {}: {} was made with {}; leave it out, --extend knows it", flag, value, f.extend,
          fmt::format("{}", recorded).empty() ? "none" : fmt::format("{}", recorded));
    }
    value = recorded;
  };
  const data::Manifest& summary = manifest.summary;
  adopt("--dataset-name", f.dataset_name, summary.dataset_name);
  adopt("--format", f.format, record.format);
  adopt("--deduplicate", f.deduplicate, record.deduplicate);
  adopt("--blank-time", f.blank_time, std::string(record.blank_time_between ? "between" : "error"));
  if (f.dataset_name != "csv") return;
  adopt("--user-column", f.user_column, record.user_column);
  adopt("--item-column", f.item_column, record.item_column);
  adopt("--time-column", f.time_column, record.time_column);
  adopt("--action-column", f.action_columns, record.action_columns);
  // Logs of later days often come without a table of titles: those of the data set stay.
  f.titles_if_present = app.count("--title-file") + app.count("--title-column") == 0;
  if (!record.title_column.empty()) {
    adopt("--title-file", f.title_file, record.title_file);
    adopt("--title-column", f.title_column, record.title_column);
  }
  if (record.time_column.empty() && f.format == "recbole") f.order = "file";
  std::vector<std::string> context;
  for (size_t i = 0; i < summary.context.size(); ++i) {
    const bool is_user = i == 0 && manifest.context[i].file == manifest.users.file;
    context.push_back(is_user ? f.user_column : summary.context[i].name);
  }
  adopt("--context-columns", f.context_columns, context);
}

data::DatasetFormat format_of(const Flags& f) {
  if (f.dataset_name == "csv") return csv_format(f);
  const bool of_files = f.format == "sasrec" || f.format == "recbole";
  const bool of_text = f.quote != "double" || !f.comment.empty();
  if (of_files || of_text || !f.order.empty() || !f.time_format.empty()) {
    throw_error<UsageError>(
        "--dataset-name {} fixes the files and columns: leave out --order, --time-format, --quote, "
        "--comment and --format {}",
        f.dataset_name, f.format);
  }
  return data::find_format(f.dataset_name);
}

data::PreprocessOptions options_of(const Flags& f) {
  data::PreprocessOptions options;
  options.ingest.input = f.input;
  options.ingest.kind = f.format == "processed-seqs" ? data::InputKind::processed_seqs
                        : f.format == "sasrec"       ? data::InputKind::item_lines
                                                     : data::InputKind::log;
  options.ingest.on_bad_row = f.on_bad_row == "skip" ? data::BadRows::skip : data::BadRows::error;
  options.ingest.blank_time =
      f.blank_time == "between" ? data::BlankTime::between : data::BlankTime::error;
  if (f.encoding == "utf-8") options.ingest.encoding = data::Encoding::utf8;
  if (f.encoding == "latin1") options.ingest.encoding = data::Encoding::latin1;
  if (f.encoding == "windows-1252") options.ingest.encoding = data::Encoding::windows_1252;
  if (!f.time_format.empty()) options.ingest.time_format.emplace(f.time_format);
  options.ingest.given_split = f.given_split;
  options.output = f.output;
  options.force = f.force;
  options.memory_limit = parse_bytes(f.memory_limit);
  options.join = f.join == "outer" ? data::Join::outer : data::Join::inner;
  options.deduplicate = f.deduplicate;
  options.min_user_events = f.min_user_events;
  options.min_item_events = f.min_item_events;
  options.iterative = f.iterative;
  options.extend = f.extend;
  const bool filters = f.min_user_events > 1 || f.min_item_events > 1;
  if (f.iterative && !filters) {
    throw_error<UsageError>("--iterative: give --min-user-events or --min-item-events");
  }
  if (f.given_split && (filters || f.deduplicate)) {
    throw_error<UsageError>(
        "--given-split with {}: dropped events would change the given parts; filter before the "
        "split is made",
        filters ? "--min-user-events or --min-item-events" : "--deduplicate");
  }
  if (!f.time_format.empty() && f.time_column.empty() && f.format != "recbole") {
    throw_error<UsageError>("--time-format: give --time-column");
  }
  return options;
}

}  // namespace seqfuse::cli
