// seqfuse preprocess: raw interaction logs to a dataset directory.
#include <fmt/ranges.h>

#include <charconv>
#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "cli/command_line.h"
#include "cli/verbs.h"
#include "data/dataset/processed_seqs.h"
#include "data/ingest/preprocess.h"
#include "data/read/input.h"

namespace seqfuse::cli {
namespace {

struct Flags {
  std::string dataset_name, input, output, format = "log", on_bad_row = "error", join = "inner";
  std::string blank_time = "error", memory_limit = "1GB", delimiter, title_delimiter, encoding;
  std::string write_processed_seqs;
  std::string user_column = "user_id", item_column = "item_id", time_column;
  std::string title_file, title_column = "title";
  std::vector<std::string> action_columns, context_columns, header;
  bool force = false, deduplicate = false;
  int threads = 0;
  int64_t min_user_events = 1, min_item_events = 1;
};

void declare(CLI::App& app, Flags& f) {
  app.add_option("--dataset-name", f.dataset_name,
                 "ml-100k, ml-latest-small, ml-1m, ml-20m, kuairand-pure, -1k, -27k, csv")
      ->required();
  app.add_option("--input", f.input, "folder, .zip, .tar.gz, .gz, .xz, .parquet or text file")
      ->required()
      ->check(kPath);
  app.add_option("--output", f.output, "dataset directory to create")->required()->check(kPath);
  app.add_flag("--force", f.force, "replace an existing dataset directory");
  app.add_option("--format", f.format, "log, or processed-seqs (one row per user)")
      ->check(CLI::IsMember({"log", "processed-seqs"}));
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
  app.add_option("--blank-time", f.blank_time,
                 "error (default), or between neighbours in file order")
      ->check(CLI::IsMember({"error", "between"}));
  app.add_option("--encoding", f.encoding, "of text files: utf-8 (default), latin1, windows-1252")
      ->check(CLI::IsMember({"utf-8", "latin1", "windows-1252"}));
  const char* csv = "csv";
  app.add_option("--user-column", f.user_column, "default user_id")->group(csv);
  app.add_option("--item-column", f.item_column, "default item_id")->group(csv);
  app.add_option("--time-column", f.time_column, "none: file order")->group(csv);
  app.add_option("--action-column", f.action_columns, "values become labels; several, a,b: bits")
      ->delimiter(',')
      ->group(csv);
  app.add_option("--context-columns", f.context_columns, "features of the user")
      ->delimiter(',')
      ->group(csv);
  app.add_option("--delimiter", f.delimiter, "default ',', tab for .tsv")->group(csv);
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

data::DatasetFormat csv_format(const Flags& f) {
  data::DatasetFormat format;
  format.name = "csv";
  format.from_flags = true;
  set_delimiter("--delimiter", f.delimiter, format.table);
  format.table.columns = f.header;
  format.user_column = f.user_column;
  format.item_column = f.item_column;
  format.time_column = f.time_column;
  format.action_columns = f.action_columns;
  format.action_rule = f.action_columns.empty()       ? data::ActionRule::none
                       : f.action_columns.size() == 1 ? data::ActionRule::values
                                                      : data::ActionRule::bits;
  if (f.action_columns.size() > 20) throw_error<UsageError>("--action-column: at most 20 bits");
  for (const std::string& column : f.context_columns) {
    if (column == f.user_column) {
      format.user_id_feature = true;
    } else {
      format.context.push_back({column, column});
    }
  }
  if (!f.title_file.empty()) {
    data::TableFormat table;
    set_delimiter("--title-delimiter", f.title_delimiter.empty() ? f.delimiter : f.title_delimiter,
                  table);
    format.titles = data::TitleTable{
        {data::without_compression(std::filesystem::path(f.title_file).filename().string()), "",
         ""},
        table,
        f.item_column,
        f.title_column};
  }
  return format;
}

void print_result(const data::PreprocessResult& result, const std::string& output, double seconds) {
  const data::Manifest& summary = result.manifest.summary;
  const data::LengthStatistics& lengths = result.manifest.lengths;
  if (result.bad_rows > 0) {
    log::warning("preprocess", "{} malformed rows of {} skipped; the first:", result.bad_rows,
                 result.rows);
    for (const std::string& bad : result.bad_examples) log::warning("preprocess", "  {}", bad);
  }
  if (!result.not_read.empty()) {
    log::warning("preprocess", "not read because of their endings: {}",
                 fmt::join(result.not_read, ", "));
  }
  fmt::print("{}: {} users, {} items, {} events\n", summary.dataset_name, summary.num_users,
             summary.num_items, summary.num_events);
  fmt::print("events per user: min {}, mean {:.1f}, median {}, max {}\n", lengths.min, lengths.mean,
             lengths.median, lengths.max);
  for (const data::ContextFeature& feature : summary.context) {
    fmt::print("context {}: {} values\n", feature.name, feature.vocab_size - 1);
  }
  for (const std::string& rule : result.manifest.rules) fmt::print("rule: {}\n", rule);
  fmt::print("{} rows in {}, {} rows/s\nwritten to {}\n", result.rows, format_duration(seconds),
             format_count(static_cast<double>(result.rows) / seconds), output);
}

}  // namespace

int cmd_preprocess(int argc, char** argv) {
  CLI::App app("Converts raw interaction logs to a dataset directory.", "preprocess");
  Flags f;
  declare(app, f);
  if (const auto code = parse_arguments(app, argc, argv)) return *code;
  if (f.threads > 0) set_num_threads(f.threads);

  while (f.output.size() > 1 && f.output.ends_with('/')) f.output.pop_back();
  const data::DatasetFormat format =
      f.dataset_name == "csv" ? csv_format(f) : data::find_format(f.dataset_name);
  data::PreprocessOptions options;
  options.ingest.input = f.input;
  options.ingest.kind = f.format == "log" ? data::InputKind::log : data::InputKind::processed_seqs;
  options.ingest.on_bad_row = f.on_bad_row == "skip" ? data::BadRows::skip : data::BadRows::error;
  options.ingest.blank_time =
      f.blank_time == "between" ? data::BlankTime::between : data::BlankTime::error;
  if (f.encoding == "utf-8") options.ingest.encoding = data::Encoding::utf8;
  if (f.encoding == "latin1") options.ingest.encoding = data::Encoding::latin1;
  if (f.encoding == "windows-1252") options.ingest.encoding = data::Encoding::windows_1252;
  options.output = f.output;
  options.force = f.force;
  options.memory_limit = parse_bytes(f.memory_limit);
  options.join = f.join == "outer" ? data::Join::outer : data::Join::inner;
  options.deduplicate = f.deduplicate;
  options.min_user_events = f.min_user_events;
  options.min_item_events = f.min_item_events;

  const auto start = std::chrono::steady_clock::now();
  const data::PreprocessResult result = data::preprocess(format, options);
  if (!f.write_processed_seqs.empty()) {
    data::write_processed_seqs(*data::Dataset::open(f.output), f.write_processed_seqs);
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  print_result(result, f.output, elapsed.count());
  return 0;
}

}  // namespace seqfuse::cli
