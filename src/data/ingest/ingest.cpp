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
#include "data/read/parquet_rows.h"
#include "data/read/text_chunks.h"

namespace seqfuse::data {
namespace {

constexpr size_t kBadExamples = 5;
constexpr size_t kMaxLogs = 64;
constexpr int kChunksOfThread = 32;  // in a batch: enough that threads end it at about one time

// What a thread needs to read a piece of a log and parse it.
struct Reader {
  Reader(const EventColumns& columns, IdTables& tables) : mapper(columns, tables) {}

  TextChunk chunk;
  RowMapper mapper;
};

// Readers that no thread holds at the moment.
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
        table_(options.kind == InputKind::log ? format.table : TableFormat()),
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
      throw_error<DataError>("{} holds no events: {} has a header but no rows that can be used",
                             options_.input.string(), fmt::join(out_.logs, ", "));
    }
    if (format_.users && !out_.has_users && options_.kind == InputKind::log &&
        !input_is_log_file_) {
      throw_error<DataError>("{} has no {} (context features of {}); it has: {}",
                             options_.input.string(), format_.users->file.text(), format_.name,
                             fmt::join(names, ", "));
    }
  }

 private:
  bool is_log(const InputMember& member) const {
    const std::string name = member.base_name();
    if (is_titles(member)) return false;
    if (options_.kind == InputKind::processed_seqs) return name.ends_with(".csv");
    // The log of `csv` is whatever file is given.
    return format_.name == "csv" || format_.log.matches(name);
  }
  bool is_users(const InputMember& member) const {
    return options_.kind == InputKind::log && format_.users &&
           format_.users->file.matches(member.base_name());
  }
  bool is_titles(const InputMember& member) const {
    return format_.titles && format_.titles->file.matches(member.base_name());
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
    const size_t shown = std::min<size_t>(names.size(), 12);
    throw_error<DataError>(
        "{} has no {} (the log of {}); it has: {}{}{}", options_.input.string(), format_.log.text(),
        format_.name, fmt::join(names.begin(), names.begin() + static_cast<int64_t>(shown), ", "),
        shown < names.size() ? ", ..." : "", hint);
  }

  void read(const InputMember& member, ByteStream& stream) {
    if (is_log(member)) {
      if (out_.logs.size() == kMaxLogs && format_.joins_logs) {
        throw_error<DataError>("more than {} log files", kMaxLogs);
      }
      out_.logs.push_back(member.name);
      input_is_log_file_ =
          std::filesystem::is_regular_file(options_.input) && member.location == options_.input;
      if (member.name.ends_with(".parquet")) {
        read_parquet(member, stream);
      } else {
        read_text(member, stream);
      }
      return;
    }
    const bool users = is_users(member);
    const std::string text = read_all(stream, member.location);
    out_.sources.push_back({member.name, static_cast<int64_t>(text.size()), hash_text(text)});
    if (users) {
      std::vector<std::string> columns;
      for (const ContextSource& feature : format_.context) columns.push_back(feature.column);
      out_.users = read_side_table(text, format_.users->table, member.location,
                                   format_.users->id_column, columns);
      out_.has_users = true;
    } else {
      out_.titles = read_side_table(text, format_.titles->table, member.location,
                                    format_.titles->id_column, {format_.titles->title_column});
      out_.has_titles = true;
    }
  }

  // The first of the candidates that is a column.
  static std::string first_of(const std::vector<std::string>& names,
                              const std::vector<std::string>& candidates) {
    for (const std::string& candidate : candidates) {
      if (std::find(names.begin(), names.end(), candidate) != names.end()) return candidate;
    }
    return candidates.front();
  }

  EventColumns resolve(const std::vector<std::string>& names, const std::string& file) {
    EventColumns columns;
    columns.names = names;
    columns.blank_time = options_.blank_time;
    columns.action_rule = format_.action_rule;
    std::string item = format_.item_column, time = format_.time_column;
    std::vector<std::string> actions = format_.action_columns;
    std::string user = format_.user_column;
    if (options_.kind == InputKind::processed_seqs) {
      user = first_of(names, {user, "user_id"});
      item = first_of(names, {item, "movie_id", "video_id", "item_id"});
      time = first_of(names, {time, "unix_timestamp", "time_ms", "timestamp", ""});
      const std::string action = first_of(
          names, {actions.empty() ? "" : actions[0], "rating", "action_weights", "action"});
      actions.clear();
      if (std::find(names.begin(), names.end(), time) == names.end()) time.clear();
      if (std::find(names.begin(), names.end(), action) != names.end()) actions = {action};
      columns.action_rule = actions.empty() ? ActionRule::none : ActionRule::labels;
    }
    columns.user = column_index(names, user, file);
    columns.item = column_index(names, item, file);
    if (!time.empty()) columns.time = column_index(names, time, file);
    out_.has_time = columns.time >= 0;
    for (const std::string& action : actions)
      columns.actions.push_back(column_index(names, action, file));
    out_.has_actions = !columns.actions.empty();
    if (!format_.users || options_.kind == InputKind::processed_seqs) {
      for (const ContextSource& feature : format_.context) {
        columns.context.push_back(column_index(names, feature.column, file));
      }
    }
    while (out_.tables.context.size() < columns.context.size()) {
      out_.tables.context.push_back(std::make_unique<IdTable>());
    }
    return columns;
  }

  // Threads take turns to read a chunk, which each of them then parses while it is in its cache.
  void read_text(const InputMember& member, ByteStream& stream) {
    const CsvDialect& dialect = table_.dialect;
    TextChunks chunks(stream, member.location, dialect.quotes);
    std::vector<std::string> names = table_.columns;
    int64_t lines = 0;
    if (names.empty()) {
      const std::string header = chunks.header();
      if (trim(header).empty()) {
        throw_error<DataError>("{} is empty: its first row must name the columns", member.location);
      }
      std::string_view rest = header;
      names = take_header(rest, table_);
      lines = 1;
    }
    const EventColumns columns = resolve(names, member.location);
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
        parse_chunk(*reader, *rows);
        readers.give_back(std::move(reader));
      });
      take(std::span(parsed).first(taken), lines, member);
    }
    out_.sources.push_back({member.name, chunks.bytes(), chunks.hash()});
  }

  void parse_chunk(Reader& reader, ParsedRows& out) const {
    RowMapper& mapper = reader.mapper;
    RowSplitter rows(reader.chunk.text(), table_.dialect);
    out.clear();
    out.events.reserve(reader.chunk.size / 64);
    while (rows.next()) {
      const int64_t line = rows.lines_before() + 1;
      if (rows.malformed() != nullptr) {
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
    const EventColumns columns = resolve(parquet.names(), member.location);
    RowMapper mapper(columns, out_.tables);
    std::vector<int> wanted = {columns.user, columns.item};
    if (columns.time >= 0) wanted.push_back(columns.time);
    wanted.insert(wanted.end(), columns.actions.begin(), columns.actions.end());
    wanted.insert(wanted.end(), columns.context.begin(), columns.context.end());
    parquet.select(wanted);
    int64_t rows = 0;
    ParsedRows parsed;
    while (parquet.next_batch()) {
      parsed.clear();
      while (parquet.next()) mapper.add(parquet.fields(), ++parsed.lines, parsed);
      mapper.finish(parsed);
      take({&parsed, 1}, rows, member);
    }
    out_.sources.push_back({member.name, parquet.bytes(), parquet.hash()});
  }

  // lines: of the member that precede the pieces; advanced past them.
  void take(std::span<ParsedRows> pieces, int64_t& lines, const InputMember& member) {
    std::vector<std::span<const Event>> events;
    for (ParsedRows& rows : pieces) {
      if (rows.bad_count > 0 && options_.on_bad_row == BadRows::error) {
        throw_error<DataError>(
            "{}:{}: {}\n  correct the row, or leave such rows out with --on-bad-row skip",
            member.location, lines + rows.bad[0].line, rows.bad[0].reason);
      }
      out_.bad_rows += rows.bad_count;
      for (const BadRow& bad : rows.bad) {
        if (out_.bad_examples.size() == kBadExamples) break;
        out_.bad_examples.push_back(
            fmt::format("{}:{}: {}", member.location, lines + bad.line, bad.reason));
      }
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
};

}  // namespace

void ingest(const DatasetFormat& format, const IngestOptions& options, Ingested& out) {
  Ingestor(format, options, out).run();
}

}  // namespace seqfuse::data
