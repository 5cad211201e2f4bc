#include "data/ingest/ingest.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "data/ingest/log_columns.h"
#include "data/read/member_names.h"
#include "data/read/parquet_rows.h"
#include "data/read/text_chunks.h"

namespace seqfuse::data {
namespace {

constexpr size_t kBadExamples = 5;
constexpr size_t kMaxLogs = 64;
constexpr int64_t kNamesShown = 12;
constexpr std::string_view kParquetMark = "PAR1";  // the first bytes of a file
constexpr int kChunksOfThread = 32;                // per batch; evens out the load

// The state of a thread that reads and parses pieces of a log.
struct Reader {
  Reader(const EventColumns& columns, IdTables& tables) : mapper(columns, tables) {}

  TextChunk chunk;
  RowMapper mapper;
};

// Readers that no thread is using.
class ReaderPool {
 public:
  ReaderPool(const EventColumns& columns, IdTables& tables) : columns_(columns), tables_(tables) {}

  std::unique_ptr<Reader> take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<Reader>(columns_, tables_);
    auto reader = std::move(idle_.back());
    idle_.pop_back();
    return reader;
  }
  void give_back(std::unique_ptr<Reader> reader) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(reader));
  }

 private:
  const EventColumns& columns_;
  IdTables& tables_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Reader>> idle_;
};

class Ingestor {
 public:
  Ingestor(const DatasetFormat& format, const IngestOptions& options, Ingested& out)
      : format_(format),
        options_(options),
        table_(with_encoding(options.kind == InputKind::log ? format.table : TableFormat())),
        out_(out),
        progress_("preprocess", "rows", 0) {}

  void run() {
    const std::vector<std::string> names = visit_input(
        options_.input,
        [this](const InputMember& member) {
          return is_log(member) || is_users(member) || is_titles(member);
        },
        [this](const InputMember& member, ByteStream& stream) { read(member, stream); });
    if (out_.logs.empty()) no_log(names);
    if (out_.events.num_events() == 0) {
      throw_error<DataError>("{} holds no events: {} has a header but no valid rows",
                             options_.input.string(), shown(out_.logs));
    }
    if (format_.users && !out_.has_users && options_.kind == InputKind::log &&
        !input_is_log_file_) {
      throw_error<DataError>("{} has no {} (context features of {}); it has: {}",
                             options_.input.string(), format_.users->file.text(), format_.name,
                             shown(names));
    }
    if (format_.from_flags && format_.titles && !out_.has_titles) {
      throw_error<DataError>("{} has no {}, the file of titles; it has: {}",
                             options_.input.string(), format_.titles->file.text(), shown(names));
    }
  }

 private:
  // Whether it is one of several files of a folder or archive.
  bool is_part(const InputMember& member) const {
    return member.location != options_.input.string();
  }
  bool is_log(const InputMember& member) const {
    const std::string name = member.base_name();
    if (is_titles(member)) return false;
    if (options_.kind == InputKind::processed_seqs) {
      return name.ends_with(".csv") || !is_part(member);
    }
    return format_.from_flags || format_.log.matches(name);
  }
  bool is_users(const InputMember& member) const {
    return options_.kind == InputKind::log && format_.users &&
           format_.users->file.matches(member.base_name());
  }
  bool is_titles(const InputMember& member) const {
    return format_.titles && format_.titles->file.matches(member.base_name());
  }
  TableFormat with_encoding(TableFormat table) const {
    if (options_.encoding) table.encoding = *options_.encoding;
    return table;
  }

  static std::string shown(const std::vector<std::string>& names) {
    const auto end = names.begin() + std::min<int64_t>(std::ssize(names), kNamesShown);
    return fmt::format("{}{}", fmt::join(names.begin(), end, ", "),
                       end < names.end() ? ", ..." : "");
  }

  [[noreturn]] void no_log(const std::vector<std::string>& names) const {
    std::string hint;
    for (const DatasetFormat& other : known_formats()) {
      const auto holds = [&](const std::string& name) {
        return other.log.matches(InputMember{name, ""}.base_name());
      };
      if (other.name != format_.name && std::any_of(names.begin(), names.end(), holds)) {
        hint = fmt::format("\n  is it --dataset-name {}?", other.name);
        break;
      }
    }
    const bool known = !format_.log.text().empty();
    throw_error<DataError>("{} has no {} (the log of {}); it has: {}{}", options_.input.string(),
                           known ? format_.log.text() : "delimited text or Parquet with rows",
                           format_.name, shown(names), hint);
  }

  void read(const InputMember& member, ByteStream& stream) {
    if (is_log(member)) {
      read_log(member, stream);
      return;
    }
    const std::string text = read_all(stream, member.location);
    out_.sources.push_back({member.name, static_cast<int64_t>(text.size()), hash_text(text)});
    if (is_users(member)) {
      std::vector<std::string> columns;
      for (const ContextSource& feature : format_.context) columns.push_back(feature.column);
      out_.users = read_side_table(text, with_encoding(format_.users->table), member,
                                   format_.users->id_column, columns);
      out_.has_users = true;
    } else {
      out_.titles = read_side_table(text, with_encoding(format_.titles->table), member,
                                    format_.titles->id_column, {format_.titles->title_column});
      out_.has_titles = true;
    }
  }

  void read_log(const InputMember& member, ByteStream& stream) {
    if (out_.logs.size() == kMaxLogs && format_.joins_logs) {
      throw_error<DataError>("more than {} log files", kMaxLogs);
    }
    input_is_log_file_ =
        std::filesystem::is_regular_file(options_.input) && member.location == options_.input;
    const FileKind kind = kind_of(member.name);
    PeekedStream peeked(stream, kParquetMark.size());
    if (kind == FileKind::parquet || peeked.head() == kParquetMark) {
      read_parquet(member, peeked);
    } else if (kind == FileKind::document && is_part(member)) {
      out_.not_read.push_back(member.name);
    } else if (kind == FileKind::other_data) {
      throw_error<DataError>(
          "{} is neither delimited text nor Parquet\n"
          "  convert it to one of these, or move it out of the input",
          member.location);
    } else {
      read_text(member, peeked);
    }
  }

  EventColumns find_columns(std::vector<std::string> names, const InputMember& member) {
    EventColumns columns = find_event_columns(format_, options_, std::move(names), member);
    const bool has_time = columns.time >= 0, has_actions = !columns.actions.empty();
    if (out_.logs.size() > 1 && (has_time != out_.has_time || has_actions != out_.has_actions)) {
      throw_error<DataError>("{} {}, unlike {}: give files with the same columns", member.location,
                             has_time != out_.has_time
                                 ? (has_time ? "has times" : "has no times")
                                 : (has_actions ? "has actions" : "has no actions"),
                             out_.logs.front());
    }
    out_.has_time = has_time;
    out_.has_actions = has_actions;
    while (out_.tables.context.size() < columns.context.size()) {
      out_.tables.context.push_back(std::make_unique<IdTable>());
    }
    columns.units_per_second = out_.units_per_second.value_or(1);
    return columns;
  }

  // Threads take turns reading chunks; each parses its own while it is in cache.
  void read_text(const InputMember& member, ByteStream& stream) {
    const CsvDialect dialect = table_.dialect_of(member.name);
    TextChunks chunks(stream, member.location, dialect, table_.encoding);
    std::vector<std::string> names = table_.columns;
    if (names.empty()) {
      names = chunks.header();
      if (names.empty()) {
        if (format_.from_flags && is_part(member)) return;
        throw_error<DataError>("{} is empty: its first row must name the columns", member.location);
      }
    }
    out_.logs.push_back(member.name);
    int64_t lines = chunks.header_lines();
    const EventColumns columns = find_columns(std::move(names), member);
    ReaderPool readers(columns, out_.tables);
    std::mutex reading;
    const auto batch_size = static_cast<size_t>(kChunksOfThread * num_threads());
    std::vector<ParsedRows> parsed(batch_size);
    for (size_t taken = batch_size; taken == batch_size;) {
      taken = 0;
      parallel_tasks(static_cast<int64_t>(batch_size), [&](int64_t) {
        auto reader = readers.take();
        ParsedRows* rows = nullptr;
        {
          const std::lock_guard lock(reading);
          if (!chunks.next(reader->chunk)) return;
          rows = &parsed[taken++];
        }
        parse_chunk(*reader, dialect, *rows);
        readers.give_back(std::move(reader));
      });
      take(std::span(parsed).first(taken), lines, member);
    }
    out_.sources.push_back({member.name, chunks.bytes(), chunks.hash()});
  }

  void parse_chunk(Reader& reader, const CsvDialect& dialect, ParsedRows& out) const {
    RowMapper& mapper = reader.mapper;
    RowSplitter rows(reader.chunk.text(), dialect);
    const bool readable = is_readable(reader.chunk.text());
    out.clear();
    out.events.reserve(reader.chunk.size / 64);
    while (rows.next()) {
      const int64_t line = rows.lines_before() + 1;
      if (std::string problem = readable ? "" : unreadable(rows.row()); !problem.empty()) {
        mapper.add_bad(std::move(problem), line, out);
      } else if (rows.malformed() != nullptr) {
        mapper.add_bad(rows.malformed(), line, out);
      } else if (options_.kind == InputKind::processed_seqs) {
        mapper.add_sequence(rows.fields(), line, out);
      } else {
        mapper.add(rows.fields(), line, out);
      }
    }
    mapper.finish(out);
    out.lines = rows.lines_before();
  }

  void read_parquet(const InputMember& member, ByteStream& stream) {
    ParquetRows parquet(read_all(stream, member.location, size_t{1} << 36), member.location);
    out_.logs.push_back(member.name);
    const EventColumns columns = find_columns(parquet.names(), member);
    RowMapper mapper(columns, out_.tables);
    std::vector<int> wanted = {columns.user, columns.item, columns.time};
    wanted.insert(wanted.end(), columns.actions.begin(), columns.actions.end());
    wanted.insert(wanted.end(), columns.context.begin(), columns.context.end());
    const auto is_in_file = [&](int column) {
      return column >= 0 && column < static_cast<int>(parquet.names().size());
    };
    std::erase_if(wanted, [&](int column) { return !is_in_file(column); });
    const auto units =
        is_in_file(columns.time) ? parquet.units_per_second(columns.time) : std::nullopt;
    if (units) note_units(*units, member);
    parquet.select(wanted, columns.time, out_.units_per_second.value_or(1));
    int64_t rows = 0;
    ParsedRows parsed;
    while (parquet.next_batch()) {
      parsed.clear();
      while (parquet.next()) {
        ++parsed.lines;
        if (std::string problem = parquet.problem(); !problem.empty()) {
          mapper.add_bad(std::move(problem), parsed.lines, parsed);
        } else if (options_.kind == InputKind::processed_seqs) {
          mapper.add_sequence(parquet.fields(), parsed.lines, parsed);
        } else {
          mapper.add(parquet.fields(), parsed.lines, parsed);
        }
      }
      mapper.finish(parsed);
      if (units) parsed.has_number_times = false;  // these numbers are converted timestamps
      take({&parsed, 1}, rows, member);
    }
    out_.sources.push_back({member.name, parquet.bytes(), parquet.hash()});
  }

  // The first times with a unit (Parquet timestamps or ISO 8601) decide the unit of all. Plain
  // numbers, whose unit is unknown, cannot be compared with them.
  void note_units(int64_t units_per_second, const InputMember& member) {
    if (!out_.units_per_second) out_.units_per_second = units_per_second;
    if (units_in_.empty()) units_in_ = member.location;
    check_units();
  }
  void check_units() const {
    if (units_in_.empty() || numbers_in_.empty()) return;
    throw_error<DataError>(
        "column {} holds timestamps in {} but numbers without a unit in {}: use one form for all",
        format_.time_column, units_in_, numbers_in_);
  }

  // lines: number of the member's lines before the pieces; advanced past them.
  void take(std::span<ParsedRows> pieces, int64_t& lines, const InputMember& member) {
    std::vector<std::span<const Event>> events;
    for (ParsedRows& rows : pieces) {
      if (rows.bad_count > 0 && options_.on_bad_row == BadRows::error) {
        throw_error<DataError>(
            "{}:{}: {}\n  correct the row, or skip such rows with --on-bad-row skip",
            member.location, lines + rows.bad[0].line, rows.bad[0].reason);
      }
      out_.bad_rows += rows.bad_count;
      for (const BadRow& bad : rows.bad) {
        out_.add_bad_example(
            fmt::format("{}:{}: {}", member.location, lines + bad.line, bad.reason));
      }
      for (const WordAction& word : rows.words) {
        out_.word_actions.try_emplace(word.code,
                                      fmt::format("{}:{}", member.location, lines + word.line));
      }
      if (rows.has_number_times && numbers_in_.empty()) {
        numbers_in_ = member.location;
        check_units();
      }
      if (rows.has_iso_times) note_units(out_.units_per_second.value_or(1), member);
      for (ContextRow& row : rows.context) {
        const auto [entry, added] = out_.row_context.try_emplace(row.user, row.values);
        if (!added && entry->second != row.values) ++out_.context_conflicts;
      }
      out_.rows += static_cast<int64_t>(rows.events.size()) + rows.bad_count;
      events.emplace_back(rows.events);
      lines += rows.lines;
    }
    const int file = format_.joins_logs ? static_cast<int>(out_.logs.size()) - 1 : 0;
    out_.events.append(events, file);
    progress_.update(out_.rows);
  }

  const DatasetFormat& format_;
  const IngestOptions& options_;
  const TableFormat table_;  // of the log
  Ingested& out_;
  Progress progress_;
  bool input_is_log_file_ = false;
  std::string units_in_, numbers_in_;  // the first file with timestamps, with plain numbers
};

}  // namespace

void Ingested::add_bad_example(std::string example) {
  if (bad_examples.size() < kBadExamples) bad_examples.push_back(std::move(example));
}

void ingest(const DatasetFormat& format, const IngestOptions& options, Ingested& out) {
  Ingestor(format, options, out).run();
}

}  // namespace seqfuse::data
