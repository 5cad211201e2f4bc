#include "data/ingest/row_reader.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/read/field_values.h"
#include "data/read/text_encoding.h"

namespace seqfuse::data {
namespace {

// Splits at runs of spaces and tabs.
void split_words(std::string_view text, std::vector<std::string_view>& words) {
  words.clear();
  for (text = trim(text); !text.empty(); text = trim(text)) {
    const size_t end = std::min(text.find_first_of(" \t"), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

// The columns that the rows themselves hold.
std::vector<std::string> own_columns(const EventColumns& columns) {
  return {columns.names.begin(), columns.names.end() - std::ssize(columns.constants)};
}

}  // namespace

RowReader::RowReader(const EventColumns& columns, const TextLayout& layout, IdTables& tables)
    : columns_(columns), layout_(layout), mapper_(columns, tables) {
  if (layout.rows == RowLayout::json) json_.emplace(own_columns(columns), layout.required);
}

void RowReader::parse(ParsedRows& out) {
  RowSplitter rows(chunk.text(), layout_.dialect);
  const bool readable = is_readable(chunk.text());
  out.clear();
  out.events.reserve(chunk.size / 64);
  while (rows.next()) {
    const int64_t line = rows.lines_before() + 1;
    std::string problem = readable ? "" : unreadable(rows.row());
    if (problem.empty() && rows.malformed() != nullptr) {
      problem = std::string(rows.malformed()) + layout_.quote_hint;
    }
    if (problem.empty()) problem = add(rows, line, out);
    if (!problem.empty()) mapper_.add_bad(std::move(problem), line, out);
  }
  mapper_.finish(out);
  out.lines = rows.lines_before();
}

std::string RowReader::add(const RowSplitter& rows, int64_t line, ParsedRows& out) {
  if (layout_.rows == RowLayout::json) return add_json(rows.row(), line, out);
  if (layout_.rows == RowLayout::item_lines) return add_items(rows, line, out);
  if (layout_.survey != nullptr) layout_.survey->add(columns_.names, rows.fields());
  if (layout_.rows == RowLayout::sequences) {
    mapper_.add_sequence(rows.fields(), line, out);
  } else {
    mapper_.add(rows.fields(), line, out);
  }
  return "";
}

std::string RowReader::add_items(const RowSplitter& rows, int64_t line, ParsedRows& out) {
  if (layout_.dialect.delimiter == kAnySpace) {
    split_words(rows.row(), words_);
  } else {
    words_.assign(rows.fields().begin(), rows.fields().end());
    std::ranges::transform(words_, words_.begin(), trim);
  }
  if (words_.empty()) return "";
  if (words_.size() < 2) {
    const bool spaces = layout_.dialect.delimiter == kAnySpace;
    return fmt::format("expected a user and one item or more, separated by {}, found '{}' alone",
                       spaces ? "spaces or tabs (--delimiter gives another)"
                              : fmt::format("'{}'", layout_.dialect.delimiter),
                       excerpt(words_[0]));
  }
  const auto blank = std::ranges::find(words_, std::string_view());
  if (blank != words_.end()) {
    return fmt::format("value {} of the line is blank; expected a user and items",
                       blank - words_.begin() + 1);
  }
  if (layout_.survey != nullptr) {
    for (const std::string_view item : std::span(words_).subspan(1)) {
      const std::string_view row[] = {words_[0], item};
      layout_.survey->add(columns_.names, row);
    }
  }
  mapper_.add_items(words_, line, out);
  return "";
}

std::string RowReader::add_json(std::string_view row, int64_t line, ParsedRows& out) {
  if (trim(row).empty()) return "";
  if (layout_.survey != nullptr) {
    std::vector<std::string> names;
    std::vector<std::string_view> values;
    const auto members = json_members(row);
    for (const auto& [name, value] : members) {
      names.push_back(name);
      values.emplace_back(value);
    }
    layout_.survey->add(names, values);
  }
  std::string problem = json_->parse(row);
  if (problem.empty()) mapper_.add(json_->fields(), line, out);
  return problem;
}

std::unique_ptr<RowReader> RowReaders::take() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::make_unique<RowReader>(columns_, layout_, tables_);
  auto reader = std::move(idle_.back());
  idle_.pop_back();
  return reader;
}

void RowReaders::give_back(std::unique_ptr<RowReader> reader) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(reader));
}

std::vector<std::string> RowReaders::columns_not_seen() const {
  std::vector<std::string> missing;
  if (layout_.rows != RowLayout::json || idle_.empty()) return missing;
  const std::vector<std::string> names = own_columns(columns_);
  for (size_t n = 0; n < names.size(); ++n) {
    const auto has = [&](const auto& reader) { return reader->seen()[n]; };
    if (std::ranges::none_of(idle_, has)) missing.push_back(names[n]);
  }
  return missing;
}

}  // namespace seqfuse::data
