#include "data/ingest/ingest.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "data/ingest/given_split.h"
#include "data/ingest/input_roles.h"
#include "data/ingest/log_columns.h"
#include "data/ingest/row_reader.h"
#include "data/read/member_names.h"
#include "data/read/text_chunks.h"
#include "data/read/typed_rows.h"

namespace seqfuse::data {
namespace {

constexpr size_t kBadExamples = 5;
constexpr size_t kMaxLogs = 64;
constexpr size_t kFirstEvents = 5;
constexpr char kNoDelimiter = '\x1F';   // JSON escapes it, so that no row holds it
constexpr size_t kChunksOfThread = 32;  // per batch; evens out the load

class Ingestor {
 public:
  Ingestor(const DatasetFormat& format, const IngestOptions& options, Ingested& out)
      : format_(format),
        options_(options),
        roles_(format, options),
        table_(with_encoding(options.kind == InputKind::processed_seqs ? TableFormat()
                                                                       : format.table)),
        out_(out),
        progress_("preprocess", "rows", 0) {}

  void run() {
    const size_t logs_before = out_.logs.size();
    const int64_t events_before = out_.events.num_events();
    std::vector<std::string> names;
    if (options_.given_split) {
      for (const Part part : {Part::train, Part::validation, Part::test}) {
        part_ = part;
        names = visit();
        part_was_read(part, names);
      }
    } else {
      names = visit();
    }
    if (out_.logs.size() == logs_before) roles_.no_log(names);
    if (out_.events.num_events() == events_before) {
      throw_error<DataError>("{} holds no events: {} has a header but no valid rows{}",
                             options_.input.string(), shown_names(out_.logs),
                             out_.bad_examples.empty()
                                 ? ""
                                 : "\n  the first malformed row: " + out_.bad_examples.front());
    }
    const bool needs_users = !input_is_log_file_ || format_.from_flags;
    if (format_.users && !out_.has_users && options_.kind == InputKind::log && needs_users) {
      roles_.no_users(names);
    }
    if (format_.from_flags && format_.titles && !format_.titles->if_present && !out_.has_titles) {
      roles_.no_titles(names);
    }
    if (options_.given_split) split_.check(out_.tables.users);
  }

 private:
  std::vector<std::string> visit() {
    return visit_input(
        options_.input, [this](const InputMember& member) { return wanted(member); },
        [this](const InputMember& member, ByteStream& stream) { read(member, stream); });
  }
  bool wanted(const InputMember& member) {
    const bool first = !options_.given_split || part_ == Part::train;
    if (roles_.is_users(member) || roles_.is_titles(member)) return first;
    if (!roles_.is_log(member) || !options_.given_split) return roles_.is_log(member);
    const auto part = part_of(member.base_name());
    if (!part && first) out_.not_read.push_back(member.name);
    return part == part_;
  }
  void part_was_read(Part part, const std::vector<std::string>& names) const {
    if (split_.has(part)) return;
    constexpr const char* kWords[] = {"train", "valid, validation, val or dev", "test"};
    throw_error<DataError>(
        "--given-split: {} has no events in a file with {} in its name; it has: {}",
        options_.input.string(), kWords[static_cast<int>(part)], shown_names(names));
  }
  TableFormat with_encoding(TableFormat table) const {
    if (options_.encoding) table.encoding = *options_.encoding;
    return table;
  }

  void read(const InputMember& member, ByteStream& stream) {
    if (roles_.is_log(member)) {
      read_log(member, stream);
      return;
    }
    const std::string text = read_all(stream, member.location);
    out_.sources.push_back({member.name, static_cast<int64_t>(text.size()), hash_text(text)});
    if (roles_.is_users(member)) {
      std::vector<std::string> columns;
      for (const ContextSource& feature : format_.context) columns.push_back(feature.column);
      take(read_side_table(text, with_encoding(format_.users->table), member,
                           format_.users->id_column, columns),
           out_.users);
      out_.has_users = true;
    } else {
      take(read_side_table(text, with_encoding(format_.titles->table), member,
                           format_.titles->id_column, {format_.titles->title_column},
                           ListColumns::allowed),
           out_.titles);
      out_.has_titles = true;
    }
  }

  // Rows of a later table take precedence.
  static void take(SideTable rows, SideTable& out) {
    for (auto& [id, row] : rows) out.insert_or_assign(id, std::move(row));
  }

  void read_log(const InputMember& member, ByteStream& stream) {
    if (out_.logs.size() == kMaxLogs && format_.joins_logs) {
      throw_error<DataError>("more than {} log files", kMaxLogs);
    }
    input_is_log_file_ =
        std::filesystem::is_regular_file(options_.input) && member.location == options_.input;
    if (read_enough()) {
      out_.all_read = false;
      return;
    }
    const FileKind kind = kind_of(member.name);
    PeekedStream peeked(stream, kMarkBytes);
    const bool is_json = format_.from_flags && options_.kind == InputKind::log &&
                         (kind == FileKind::json_lines || peeked.head().starts_with('{'));
    const bool is_document = kind == FileKind::document && roles_.is_part(member);
    if (const auto rows = open_typed_rows(member.name, peeked, member.location)) {
      read_typed(member, *rows);
    } else if (is_document) {
      out_.not_read.push_back(member.name);
    } else if (format_.from_flags && peeked.head().starts_with('[') &&
               (kind == FileKind::json_lines || member.name.ends_with(".json"))) {
      throw_error<DataError>(
          "{} begins with '[', a list; expected JSON lines, one object a row\n"
          "  jq -c '.[]' {} > rows.jsonl converts a list of objects",
          member.location, member.name);
    } else if (kind == FileKind::json_lines && !is_json) {
      throw_error<DataError>(
          "{} holds JSON lines; expected delimited text: move it out of the input",
          member.location);
    } else if (kind == FileKind::other_data) {
      throw_error<DataError>(
          "{} is neither delimited text nor Parquet{}\n"
          "  convert it to one of these, or move it out of the input",
          member.location, format_.from_flags ? " nor JSON lines" : "");
    } else {
      read_text(member, peeked, is_json);
    }
  }
  bool read_enough() const {
    int64_t bytes = 0;
    for (const SourceEntry& source : out_.sources) bytes += source.bytes;
    return options_.most_bytes > 0 && bytes >= options_.most_bytes;
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

  // For a look at a file whose columns are not those that were asked for.
  void survey_only(TextChunks& chunks, const std::vector<std::string>& names,
                   const TextLayout& layout) {
    for (TextChunk chunk; next_chunk(chunks, chunk);) {
      RowSplitter rows(chunk.text(), layout.dialect);
      while (rows.next()) layout.survey->add(names, rows.fields());
    }
  }

  // Threads take turns to read a chunk; each parses its own while it is in cache.
  void read_text(const InputMember& member, ByteStream& stream, bool is_json) {
    TextLayout layout;
    layout.rows = is_json                                      ? RowLayout::json
                  : options_.kind == InputKind::processed_seqs ? RowLayout::sequences
                  : options_.kind == InputKind::item_lines     ? RowLayout::item_lines
                                                               : RowLayout::events;
    layout.dialect = table_.dialect_of(member.name);
    layout.survey = options_.survey;
    if (format_.from_flags) layout.quote_hint = "; --quote none makes quotes ordinary characters";
    if (is_json || options_.kind == InputKind::item_lines) layout.dialect.quotes = false;
    if (is_json) layout.dialect.delimiter.assign(1, kNoDelimiter);
    TextChunks chunks(stream, member.location, layout.dialect, table_.encoding);
    std::vector<std::string> names =
        is_json ? json_columns(format_, options_, member, layout.required) : table_.columns;
    if (names.empty()) {
      names = chunks.header();
      if (names.empty()) {
        if (format_.from_flags && roles_.is_part(member)) return;
        throw_error<DataError>("{} is empty: its first row must name the columns", member.location);
      }
    }
    out_.logs.push_back(member.name);
    int64_t lines = chunks.header_lines();
    const int64_t rows_before = out_.rows;
    EventColumns columns;
    try {
      columns = find_columns(names, member);
    } catch (const DataError&) {
      if (layout.survey != nullptr) survey_only(chunks, names, layout);
      throw;
    }
    RowReaders readers(columns, layout, out_.tables);
    std::mutex reading;
    const auto batch_size = kChunksOfThread * static_cast<size_t>(num_threads());
    std::vector<ParsedRows> parsed(batch_size);
    for (size_t taken = batch_size; taken == batch_size;) {
      taken = 0;
      parallel_tasks(static_cast<int64_t>(batch_size), [&](int64_t) {
        auto reader = readers.take();
        ParsedRows* rows = nullptr;
        {
          const std::lock_guard lock(reading);
          if (next_chunk(chunks, reader->chunk)) rows = &parsed[taken++];
        }
        if (rows != nullptr) reader->parse(*rows);
        readers.give_back(std::move(reader));
      });
      take(std::span(parsed).first(taken), lines, member);
    }
    out_.sources.push_back({member.name, chunks.bytes(), chunks.hash()});
    const auto missing = readers.columns_not_seen();
    if (!missing.empty() && out_.rows > rows_before && out_.all_read) {
      throw_error<DataError>("no row of {} has '{}': is the name right?", member.location,
                             fmt::join(missing, "', '"));
    }
  }

  bool next_chunk(TextChunks& chunks, TextChunk& chunk) {
    if (options_.most_bytes > 0 && chunks.bytes() >= options_.most_bytes) {
      out_.all_read = false;
      return false;
    }
    return chunks.next(chunk);
  }

  void read_typed(const InputMember& member, TypedRows& file) {
    out_.logs.push_back(member.name);
    EventColumns columns = find_columns(file.names(), member);
    RowMapper mapper(columns, out_.tables);
    std::vector<int> wanted = {columns.user, columns.item, columns.time};
    wanted.insert(wanted.end(), columns.actions.begin(), columns.actions.end());
    wanted.insert(wanted.end(), columns.context.begin(), columns.context.end());
    const auto is_in_file = [&](int column) {
      return column >= 0 && column < static_cast<int>(file.names().size());
    };
    std::erase_if(wanted, [&](int column) { return !is_in_file(column); });
    const auto units =
        is_in_file(columns.time) ? file.units_per_second(columns.time) : std::nullopt;
    if (units) {
      note_units(*units, member);
      columns.time_format.reset();
    }
    file.select(wanted, columns.time, out_.units_per_second.value_or(1));
    int64_t rows = 0;
    ParsedRows parsed;
    while (!read_enough_rows(rows) && file.next_batch()) {
      parsed.clear();
      while (file.next()) {
        ++parsed.lines;
        if (std::string problem = file.problem(); !problem.empty()) {
          mapper.add_bad(std::move(problem), parsed.lines, parsed);
          continue;
        }
        if (options_.survey != nullptr) options_.survey->add(file.names(), file.fields(), wanted);
        if (options_.kind == InputKind::processed_seqs) {
          mapper.add_sequence(file.fields(), parsed.lines, parsed);
        } else {
          mapper.add(file.fields(), parsed.lines, parsed);
        }
      }
      mapper.finish(parsed);
      if (units) parsed.has_number_times = false;  // these numbers are converted timestamps
      take({&parsed, 1}, rows, member);
    }
    out_.sources.push_back({member.name, file.bytes(), file.hash()});
  }

  bool read_enough_rows(int64_t rows) {
    constexpr int64_t kBytesOfRow = 64;  // about, as text
    if (options_.most_bytes == 0 || rows * kBytesOfRow < options_.most_bytes) return false;
    out_.all_read = false;
    return true;
  }

  // The first times with a unit (Parquet timestamps or ISO 8601) decide the unit of all. Plain
  // numbers, whose unit is unknown, cannot be compared with them.
  void note_units(int64_t units_per_second, const InputMember& member) {
    if (!out_.units_per_second) out_.units_per_second = units_per_second;
    if (out_.units_in.empty()) out_.units_in = member.location;
    check_units();
  }
  void check_units() const {
    if (out_.units_in.empty() || out_.numbers_in.empty()) return;
    throw_error<DataError>(
        "column {} holds timestamps in {} but numbers without a unit in {}: use one form for all",
        format_.time_column, out_.units_in, out_.numbers_in);
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
      if (rows.has_number_times && out_.numbers_in.empty()) {
        out_.numbers_in = member.location;
        check_units();
      }
      if (rows.has_unit_times) note_units(out_.units_per_second.value_or(1), member);
      for (ContextRow& row : rows.context) {
        const auto [entry, added] = out_.row_context.try_emplace(row.user, row.values);
        if (!added && entry->second != row.values) ++out_.context_conflicts;
      }
      for (size_t i = 0; i < rows.events.size() && out_.first_events.size() < kFirstEvents; ++i) {
        out_.first_events.push_back(rows.events[i]);
      }
      if (options_.given_split) split_.add(rows.events, part_, out_.tables.users.code_bound());
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
  const InputRoles roles_;
  const TableFormat table_;  // of the log
  Ingested& out_;
  Progress progress_;
  bool input_is_log_file_ = false;
  Part part_ = Part::train;  // being read
  GivenSplit split_;
};

}  // namespace

void Ingested::add_bad_example(std::string example) {
  if (bad_examples.size() < kBadExamples) bad_examples.push_back(std::move(example));
}

void ingest(const DatasetFormat& format, const IngestOptions& options, Ingested& out) {
  Ingestor(format, options, out).run();
}

}  // namespace seqfuse::data
