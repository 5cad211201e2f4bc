// Delimited text: rows to fields, fields to numbers. RFC 4180 with what real files hold besides:
// BOM, CRLF, any delimiter of one or two characters, no final newline.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace seqfuse::data {

struct CsvDialect {
  std::string delimiter = ",";  // one or two characters
  bool quotes = true;           // "..." may enclose a field, "" is a quote within it
};

// Splits one delimited text row by row. Fields are views into the text, or, where a quoted field
// holds
// "", into a buffer that lives until the next row.
class RowSplitter {
 public:
  RowSplitter(std::string_view text, const CsvDialect& dialect);

  // The next row that is not blank; false at the end of the text.
  bool next();

  std::span<const std::string_view> fields() const { return {fields_.data(), num_fields_}; }
  // Why the row's quoting is malformed, or nullptr. Such a row ends at the first newline.
  const char* malformed() const { return malformed_; }
  std::string_view row() const { return row_; }           // without the line ending
  int64_t lines_before() const { return lines_before_; }  // newlines that precede the row

 private:
  void split_plain();
  const char* split_quoted();
  bool at_delimiter(const char* p) const;
  std::string_view unescape(std::string_view quoted);
  void add_field(std::string_view field);

  const char* next_;
  const char* end_;
  char first_, second_;  // of the delimiter; second 0 if it is one character
  bool quotes_;
  std::vector<std::string_view> fields_;  // the first num_fields_
  size_t num_fields_ = 0;
  std::deque<std::string> unescaped_;  // never moves what fields view
  size_t unescaped_used_ = 0;
  const char* malformed_ = nullptr;
  std::string_view row_;
  int64_t lines_before_ = 0, lines_after_ = 0;
};

// The number of characters up to and including the last newline that is not within quotes (the last
// newline at all if quoting never closes); 0 without a newline.
size_t whole_rows(std::string_view text, bool quotes);

// Without a UTF-8 byte order mark. Throws DataError for UTF-16, naming the file.
std::string_view without_bom(std::string_view text, const std::string& file);

// Without spaces and tabs at both ends.
inline std::string_view trim(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// "-12", "0", "345": an int64 exactly as it would be printed; nothing else ("007", "+1", "1.0").
std::optional<int64_t> parse_canonical_int64(std::string_view text);

// A decimal number, or nothing: the whole text must be one.
std::optional<double> parse_double(std::string_view text);

// A point in time: an integer, a decimal number (rounded down) or ISO 8601 "2024-05-06[
// T]07:08:09[Z]" (as Unix seconds, UTC).
std::optional<int64_t> parse_time(std::string_view text);

// Text in Latin-1 as UTF-8; text that is valid UTF-8 already stays as it is.
std::string latin1_to_utf8(std::string_view text);

}  // namespace seqfuse::data
