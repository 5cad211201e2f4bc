#include "config/lexer.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace seqfuse::config {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_name(char c) {
  return is_letter(c) || is_digit(c);
}
bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

// Length of the UTF-8 sequence that starts at text[i], 0 if it is malformed, overlong or a
// surrogate.
size_t utf8_length(std::string_view text, size_t i) {
  const auto byte = [&](size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U;
  };
  const unsigned lead = byte(i), second = byte(i + 1);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
      (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) {
    return 0;
  }
  for (size_t k = 1; k < length; ++k) {
    if ((byte(i + k) & 0xC0U) != 0x80) return 0;
  }
  return length;
}

std::string unify_newlines(std::string_view text) {
  std::string unified;
  unified.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      unified += text[i];
    } else if (i + 1 == text.size() || text[i + 1] != '\n') {
      unified += '\n';
    }
  }
  return unified;
}

// The digits without Python's separators (1_000), or nothing if a separator is misplaced.
std::string without_separators(std::string_view digits) {
  std::string plain;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (digits[i] != '_') {
      plain += digits[i];
    } else if (i == 0 || i + 1 == digits.size() || digits[i - 1] == '_' ||
               !is_name(digits[i - 1]) || !is_name(digits[i + 1])) {
      return {};
    }
  }
  return plain;
}

}  // namespace

std::string Token::describe() const {
  switch (kind) {
    case TokenKind::end:
      return "the end of the text";
    case TokenKind::newline:
      return "the end of the line";
    case TokenKind::selector:
      return "the name " + text;
    case TokenKind::integer:
    case TokenKind::real:
      return "the number " + text;
    case TokenKind::string:
      return "a string";
    case TokenKind::punctuation:
      return "'" + text + "'";
  }
  return text;
}

Lexer::Lexer(std::string source, std::string_view text)
    : source_(std::make_shared<const std::string>(std::move(source))) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  text_ = unify_newlines(text);
  int line = 1;
  for (size_t i = 0; i < text_.size();) {
    const size_t length = utf8_length(text_, i);
    SEQFUSE_CHECK_AS(UsageError, length > 0,
                     "{}:{}: byte 0x{:02x} is not UTF-8 text; expected a gin file", *source_, line,
                     static_cast<unsigned char>(text_[i]));
    line += text_[i] == '\n';
    i += length;
  }
}

char Lexer::peek(size_t ahead) const {
  return position_ + ahead < text_.size() ? text_[position_ + ahead] : '\0';
}

void Lexer::advance(size_t count) {
  for (; count > 0 && position_ < text_.size(); --count, ++position_) {
    if (text_[position_] == '\n') {
      ++line_;
      column_ = 1;
    } else if (!is_continuation(text_[position_])) {
      ++column_;
    }
  }
}

void Lexer::skip_blanks() {
  for (;;) {
    const char c = peek();
    if (c == ' ' || c == '\t' || c == '\f' || (c == '\n' && depth_ > 0)) {
      advance(1);
    } else if (c == '#') {
      while (position_ < text_.size() && peek() != '\n') advance(1);
    } else if (c == '\\' && peek(1) == '\n') {
      advance(2);
    } else {
      return;
    }
  }
}

Token Lexer::begin(TokenKind kind) const {
  Token token;
  token.kind = kind;
  token.location = here();
  return token;
}

Token Lexer::next() {
  const size_t before = position_;
  skip_blanks();
  const bool adjacent = position_ == before;
  const char c = peek();
  Token token;
  if (position_ == text_.size()) {
    token = begin(TokenKind::end);
  } else if (c == '\n') {
    token = begin(TokenKind::newline);
    advance(1);
  } else if (is_letter(c)) {
    token = read_selector();
  } else if (is_digit(c) || (c == '.' && is_digit(peek(1)))) {
    token = read_number();
  } else if (c == '\'' || c == '"') {
    token = read_string();
  } else if (c > ' ' && c < '\x7f') {
    token = begin(TokenKind::punctuation);
    token.text = c;
    advance(1);
    if (c == '(' || c == '[' || c == '{') ++depth_;
    if ((c == ')' || c == ']' || c == '}') && depth_ > 0) --depth_;
  } else {
    throw_error<UsageError>("{}: unexpected character 0x{:02x}; it is only allowed in strings",
                            here().text(), static_cast<unsigned char>(c));
  }
  token.adjacent = adjacent;
  return token;
}

Token Lexer::read_selector() {
  Token token = begin(TokenKind::selector);
  for (;;) {
    if (!is_letter(peek())) {
      throw_error<UsageError>("{}: expected a name after '{}'", here().text(), token.text);
    }
    while (is_name(peek())) {
      token.text += peek();
      advance(1);
    }
    if (peek() != '.' && peek() != '/') break;
    token.text += peek();
    advance(1);
  }
  const char quote = peek();
  SEQFUSE_CHECK_AS(UsageError, (quote != '\'' && quote != '"') || token.text.size() > 2,
                   "{}: strings with a prefix ({}{}) are not supported; write a plain string",
                   token.location.text(), token.text, quote);
  return token;
}

Token Lexer::read_number() {
  Token token = begin(TokenKind::integer);
  const bool based = peek() == '0' && is_letter(peek(1)) && peek(1) != 'e' && peek(1) != 'E';
  for (char c = peek(); is_name(c) || c == '.' || c == '+' || c == '-'; c = peek()) {
    const char last = token.text.empty() ? '\0' : token.text.back();
    if ((c == '+' || c == '-') && (based || (last != 'e' && last != 'E'))) break;
    token.text += c;
    advance(1);
  }
  const auto fail = [&](std::string_view reason) {
    throw_error<UsageError>("{}: {} is not a number: {}", token.location.text(), token.text,
                            reason);
  };
  const std::string digits = without_separators(token.text);
  if (digits.empty()) fail("'_' is only allowed between digits");

  std::string_view rest = digits;
  int base = 10;
  if (based) {
    const char kind = digits[1] | 0x20;  // lower case
    base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (base == 0) fail("expected digits; a string needs quotes");
    rest.remove_prefix(2);
  }
  const char* const end = rest.data() + rest.size();
  std::from_chars_result result{};
  if (base != 10 || rest.find_first_of(".eE") == std::string_view::npos) {
    if (base == 10 && rest.size() > 1 && rest[0] == '0' &&
        rest.find_first_not_of('0') != std::string_view::npos) {
      fail("an integer must not start with 0");
    }
    result = std::from_chars(rest.data(), end, token.integer, base);
  } else {
    token.kind = TokenKind::real;
    result = std::from_chars(rest.data(), end, token.real);
  }
  if (result.ec == std::errc::result_out_of_range) fail("out of range");
  if (result.ec != std::errc() || result.ptr != end) fail("expected digits; a string needs quotes");
  return token;
}

Token Lexer::read_string() {
  Token token = begin(TokenKind::string);
  const char quote = peek();
  const bool triple = peek(1) == quote && peek(2) == quote;
  advance(triple ? 3 : 1);
  for (;;) {
    const char c = peek();
    if (position_ == text_.size() || (c == '\n' && !triple)) {
      throw_error<UsageError>("{}: the string that starts here has no closing {}",
                              token.location.text(), std::string(triple ? 3 : 1, quote));
    }
    if (c == quote && (!triple || (peek(1) == quote && peek(2) == quote))) {
      advance(triple ? 3 : 1);
      return token;
    }
    if (c == '\\') {
      read_escape(token.text);
    } else {
      SEQFUSE_CHECK_AS(UsageError, c != '\0', "{}: a string cannot contain NUL", here().text());
      token.text += c;
      advance(1);
    }
  }
}

// As in Python, an unknown escape stands for itself, backslash included.
void Lexer::read_escape(std::string& content) {
  static constexpr std::string_view kLetters = "\\'\"nrtabfv";
  static constexpr std::string_view kMeanings = "\\'\"\n\r\t\a\b\f\v";
  const Location location = here();
  const char letter = peek(1);
  if (letter == '\n') return advance(2);
  if (const size_t at = kLetters.find(letter); at != std::string_view::npos) {
    content += kMeanings[at];
    return advance(2);
  }
  const bool octal = letter >= '0' && letter <= '7';
  const size_t digits = octal ? 3 : letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
  if (digits == 0) {
    content += '\\';
    return advance(1);
  }
  const size_t first = position_ + (octal ? 1 : 2);
  const char* const begin = text_.data() + std::min(first, text_.size());
  const char* const end = text_.data() + std::min(first + digits, text_.size());
  uint32_t code_point = 0;
  const auto [stop, error] = std::from_chars(begin, end, code_point, octal ? 8 : 16);
  if (error != std::errc() || (!octal && stop != begin + digits)) {
    throw_error<UsageError>("{}: \\{} needs {} hexadecimal digits", location.text(), letter,
                            digits);
  }
  append_code_point(content, code_point, location);
  advance(static_cast<size_t>(stop - text_.data()) - position_);
}

void Lexer::append_code_point(std::string& content, uint32_t c, const Location& location) const {
  const bool surrogate = c >= 0xD800 && c < 0xE000;
  SEQFUSE_CHECK_AS(UsageError, c != 0 && c <= 0x10FFFF && !surrogate,
                   "{}: U+{:04X} is not allowed in a string", location.text(), c);
  const auto put = [&](uint32_t byte) { content += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

}  // namespace seqfuse::config
