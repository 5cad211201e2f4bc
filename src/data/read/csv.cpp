#include "data/read/csv.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace seqfuse::data {
namespace {

static_assert(std::endian::native == std::endian::little,
              "split_plain() counts bytes from the low end");

// The high bit of each byte of word that equals the byte repeated in pattern.
uint64_t equal_bytes(uint64_t word, uint64_t pattern) {
  constexpr uint64_t kLow = 0x7F7F7F7F7F7F7F7F;
  const uint64_t x = word ^ pattern;
  return ~(((x & kLow) + kLow) | x | kLow);
}

// The quote that closes a field whose content starts at p, nullptr if there is none before limit.
const char* closing_quote(const char* p, const char* limit, bool& doubled) {
  for (;; ++p) {
    if (p >= limit) return nullptr;
    p = static_cast<const char*>(std::memchr(p, '"', static_cast<size_t>(limit - p)));
    if (p == nullptr || p + 1 == limit || p[1] != '"') return p;
    doubled = true;
    ++p;
  }
}

// The end of the text in which the quotes of the row that starts at `row` must close.
const char* quoting_limit(const char* row, const char* end, size_t longest_row) {
  return row + std::min(static_cast<size_t>(end - row), longest_row);
}

bool is_line_end(const char* p, const char* end) {
  return p == end || *p == '\n' || (*p == '\r' && (p + 1 == end || p[1] == '\n'));
}

// Whether a field starts at this quote, which is outside of quotes. from: an earlier field's start
// in the same row, or the end of a quoted field; moved to the start of the last field.
bool opens_field(const char*& from, const char* quote, const Delimiter& delimiter) {
  if (delimiter.size() == 1) return quote == from || quote[-1] == delimiter.first;
  for (const char* p = from; p < quote;) {
    if (delimiter.is_at(p, quote)) {
      from = p += 2;
    } else {
      ++p;
    }
  }
  return from == quote;
}

}  // namespace

Delimiter::Delimiter(const std::string& text)
    : first(text.at(0)), second(text.size() > 1 ? text[1] : '\0') {}

bool Delimiter::is_at(const char* p, const char* end) const {
  return p != end && *p == first && (second == '\0' || (p + 1 < end && p[1] == second));
}

RowSplitter::RowSplitter(std::string_view text, const CsvDialect& dialect)
    : next_(text.data()),
      end_(text.data() + text.size()),
      delimiter_(dialect.delimiter),
      comment_(dialect.comment),
      longest_row_(dialect.longest_row),
      quotes_(dialect.quotes && text.find('"') != std::string_view::npos) {}

bool RowSplitter::next() {
  malformed_ = nullptr;
  for (;;) {
    lines_before_ = lines_after_;
    if (next_ == end_) return false;
    const auto* newline =
        static_cast<const char*>(std::memchr(next_, '\n', static_cast<size_t>(end_ - next_)));
    const char* line_end = newline != nullptr ? newline : end_;
    const char* content_end = line_end > next_ && line_end[-1] == '\r' ? line_end - 1 : line_end;
    row_ = {next_, static_cast<size_t>(content_end - next_)};
    const bool blank = row_.empty() || (!comment_.empty() && row_.starts_with(comment_));
    const bool quoted = quotes_ && std::memchr(row_.data(), '"', row_.size()) != nullptr;
    const char* start = next_;
    next_ = newline != nullptr ? newline + 1 : end_;
    ++lines_after_;
    if (blank) continue;
    if (!quoted) {
      split_plain();
      return true;
    }
    const char* after_line = next_;
    next_ = start;
    malformed_ = split_quoted();
    if (malformed_ != nullptr) next_ = after_line;
    lines_after_ = lines_before_ + std::max<int64_t>(1, std::count(start, next_, '\n'));
    return true;
  }
}

// Eight bytes at a time: reading a log spends most of its time here.
void RowSplitter::split_plain() {
  // A row cannot have more fields than this, so storing them needs no bounds check.
  if (fields_.size() <= row_.size()) fields_.resize(row_.size() + 1);
  std::string_view* field = fields_.data();
  const char* begin = row_.data();
  const char* end = begin + row_.size();
  const char first = delimiter_.first, second = delimiter_.second;
  const uint64_t pattern = 0x0101010101010101 * static_cast<unsigned char>(first);
  const auto end_field = [&](const char* at) {
    if (second != '\0') {
      if (at < begin) return;  // the second ':' of ":::"
      if (at + 1 == end || at[1] != second) return;
    }
    *field++ = {begin, static_cast<size_t>(at - begin)};
    begin = at + (second != '\0' ? 2 : 1);
  };
  const char* p = begin;
  for (; end - p >= 8; p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    for (uint64_t found = equal_bytes(word, pattern); found != 0; found &= found - 1) {
      end_field(p + std::countr_zero(found) / 8);
    }
  }
  for (; p < end; ++p) {
    if (*p == first) end_field(p);
  }
  *field++ = {begin, static_cast<size_t>(end - begin)};
  num_fields_ = static_cast<size_t>(field - fields_.data());
}

// Splits from next_ on, across newlines within quotes; leaves next_ after the row's newline.
const char* RowSplitter::split_quoted() {
  num_fields_ = 0;
  unescaped_used_ = 0;
  const char* start = next_;
  const char* limit = quoting_limit(start, end_, longest_row_);
  const char* p = next_;
  for (;;) {
    if (p != end_ && *p == '"') {
      const char* begin = p + 1;
      bool doubled = false;
      p = closing_quote(begin, limit, doubled);
      if (p == nullptr) return "a quoted field is not closed";
      const std::string_view quoted(begin, static_cast<size_t>(p - begin));
      add_field(doubled ? unescape(quoted) : quoted);
      ++p;
      if (!is_line_end(p, end_) && !delimiter_.is_at(p, end_)) {
        return "text follows a closing quote";
      }
    } else {
      const char* begin = p;
      while (!is_line_end(p, end_) && !delimiter_.is_at(p, end_)) ++p;
      add_field({begin, static_cast<size_t>(p - begin)});
    }
    if (is_line_end(p, end_)) break;
    p += delimiter_.size();
  }
  row_ = {start, static_cast<size_t>(p - start)};
  if (p != end_ && *p == '\r') ++p;
  next_ = p == end_ ? p : p + 1;
  return nullptr;
}

void RowSplitter::add_field(std::string_view field) {
  if (num_fields_ == fields_.size()) fields_.emplace_back();
  fields_[num_fields_++] = field;
}

std::string_view RowSplitter::unescape(std::string_view quoted) {
  if (unescaped_used_ == unescaped_.size()) unescaped_.emplace_back();
  std::string& text = unescaped_[unescaped_used_++];
  text.clear();
  for (size_t i = 0; i < quoted.size(); ++i) {
    text += quoted[i];
    if (quoted[i] == '"') ++i;
  }
  return text;
}

// Goes from quote to quote by the grammar of RowSplitter: only a forward scan can tell which quotes
// open a field.
size_t whole_rows(std::string_view text, const CsvDialect& dialect) {
  const size_t last_newline = text.rfind('\n');
  if (last_newline == std::string_view::npos) return 0;
  if (!dialect.quotes || text.find('"') == std::string_view::npos) return last_newline + 1;
  const Delimiter delimiter(dialect.delimiter);
  const char* const end = text.data() + text.size();
  const char* row = text.data();  // the start of the row that p is in
  const char* field = row;        // see opens_field()
  for (const char* p = row;;) {   // outside of quotes
    const auto rest = static_cast<size_t>(end - p);
    const auto* quote = static_cast<const char*>(std::memchr(p, '"', rest));
    const size_t plain = quote != nullptr ? static_cast<size_t>(quote - p) : rest;
    const size_t newline = std::string_view(p, plain).rfind('\n');
    if (newline != std::string_view::npos) row = field = p + newline + 1;
    if (quote == nullptr) break;
    if (!dialect.comment.empty() &&
        std::string_view(row, static_cast<size_t>(end - row)).starts_with(dialect.comment)) {
      // Quotes of a comment mean nothing: go on in the next line.
      const auto* line_end =
          static_cast<const char*>(std::memchr(row, '\n', static_cast<size_t>(end - row)));
      if (line_end == nullptr) break;
      p = row = field = line_end + 1;
      continue;
    }
    if (!opens_field(field, quote, delimiter)) {
      p = quote + 1;
      continue;
    }
    bool doubled = false;
    const char* limit = quoting_limit(row, end, dialect.longest_row);
    const char* closing = closing_quote(quote + 1, limit, doubled);
    // The next characters may decide, but are not here yet.
    if (closing == nullptr ? limit == end : end - closing < 3) break;
    if (closing != nullptr &&
        (is_line_end(closing + 1, end) || delimiter.is_at(closing + 1, end))) {
      p = field = closing + 1;
      continue;
    }
    // Malformed: the row ends at its first newline.
    const auto* line_end =
        static_cast<const char*>(std::memchr(row, '\n', static_cast<size_t>(end - row)));
    if (line_end == nullptr) break;
    p = row = field = line_end + 1;
  }
  return static_cast<size_t>(row - text.data());
}

}  // namespace seqfuse::data
