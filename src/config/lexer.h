// Tokens of a gin file: Python's literals, selectors (scope/module.Class.parameter), punctuation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "config/value.h"

namespace seqfuse::config {

enum class TokenKind { end, newline, selector, integer, real, string, punctuation };

struct Token {
  TokenKind kind = TokenKind::end;
  Location location;
  std::string text;      // as written; string: its content, escapes replaced
  uint64_t integer = 0;  // magnitude: signs are punctuation
  double real = 0;
  bool adjacent = false;  // no whitespace before it

  bool is(char c) const { return kind == TokenKind::punctuation && text[0] == c; }
  std::string describe() const;  // for messages: "the end of the line", "'*'", "the name ml"
};

class Lexer {
 public:
  // source: name of the text in messages. CRLF and CR also end lines; a byte order mark is skipped.
  // Throws UsageError if the text is not UTF-8.
  Lexer(std::string source, std::string_view text);

  // Returns the next token. Newlines inside brackets and after a backslash are not tokens. Throws
  // UsageError, with "source:line:column:", for an invalid token.
  Token next();

 private:
  char peek(size_t ahead = 0) const;
  void advance(size_t count);
  void skip_blanks();
  Location here() const { return {source_, line_, column_}; }
  Token begin(TokenKind kind) const;
  Token read_selector();
  Token read_number();
  Token read_string();
  void read_escape(std::string& content);
  void append_code_point(std::string& content, uint32_t code_point, const Location& location) const;

  std::shared_ptr<const std::string> source_;
  std::string text_;
  size_t position_ = 0;
  int line_ = 1, column_ = 1;
  int depth_ = 0;  // of open brackets
};

}  // namespace seqfuse::config
