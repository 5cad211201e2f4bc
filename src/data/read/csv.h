// Delimited text: rows to fields. RFC 4180, extended for real files: CRLF, any delimiter of one or
// two characters, no final newline, quotes within fields that do not start with one.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace seqfuse::data {

struct CsvDialect {
  std::string delimiter = ",";  // one or two characters
  bool quotes = true;           // a field that starts with " ends with "; "" is a quote within it
  size_t longest_row = size_t{1} << 28;  // bytes from a row's start within which quotes must close
  std::string comment;  // lines that begin with this are no rows; empty: there are none
};

struct Delimiter {
  explicit Delimiter(const std::string& text);

  size_t size() const { return second != '\0' ? 2 : 1; }
  bool is_at(const char* p, const char* end) const;

  char first, second;  // second 0 if it is one character
};

// Splits one delimited text row by row. Fields are views into the text or, for a quoted field that
// contains "", into a buffer that lives until the next row.
class RowSplitter {
 public:
  RowSplitter(std::string_view text, const CsvDialect& dialect);

  // The next row that is neither blank nor a comment; false at the end of the text.
  bool next();

  std::span<const std::string_view> fields() const { return {fields_.data(), num_fields_}; }
  // Why the row's quoting is malformed, or nullptr. Such a row ends at the first newline.
  const char* malformed() const { return malformed_; }
  std::string_view row() const { return row_; }           // without the line ending
  int64_t lines_before() const { return lines_before_; }  // newlines that precede the row
  int64_t lines_after() const { return lines_after_; }    // and those up to its end
  std::string_view rest() const { return {next_, static_cast<size_t>(end_ - next_)}; }

 private:
  void split_plain();
  const char* split_quoted();
  std::string_view unescape(std::string_view quoted);
  void add_field(std::string_view field);

  const char* next_;
  const char* end_;
  Delimiter delimiter_;
  std::string comment_;
  size_t longest_row_;
  bool quotes_;                           // the dialect has quotes and the text contains some
  std::vector<std::string_view> fields_;  // the first num_fields_
  size_t num_fields_ = 0;
  std::deque<std::string> unescaped_;  // never moves what fields view
  size_t unescaped_used_ = 0;
  const char* malformed_ = nullptr;
  std::string_view row_;
  int64_t lines_before_ = 0, lines_after_ = 0;
};

// Length of the longest prefix of text, the start of a longer text, that is complete rows:
// RowSplitter finds the same rows in the two parts as in the whole. 0 if the first row is
// incomplete. Looks up to three characters past the last quote it relies on.
size_t whole_rows(std::string_view text, const CsvDialect& dialect);

}  // namespace seqfuse::data
