#include "data/read/csv.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace seqfuse::data {
namespace {

static_assert(std::endian::native == std::endian::little,
              "split_plain() counts bytes from the low end");

bool is_valid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80   ? 1
                          : lead < 0xC2 ? 0
                          : lead < 0xE0 ? 2
                          : lead < 0xF0 ? 3
                          : lead < 0xF5 ? 4
                                        : 0;
    if (length == 0 || i + length > text.size()) return false;
    for (size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xC0) != 0x80) return false;
    }
    i += length;
  }
  return true;
}

// Digits at text[begin, begin + count) as a number, or -1.
int digits(std::string_view text, size_t begin, size_t count) {
  int value = 0;
  for (size_t i = begin; i < begin + count; ++i) {
    if (i >= text.size() || text[i] < '0' || text[i] > '9') return -1;
    value = value * 10 + (text[i] - '0');
  }
  return value;
}

std::optional<int64_t> parse_iso8601(std::string_view text) {
  if (text.ends_with('Z')) text.remove_suffix(1);
  if (text.size() < 10 || text[4] != '-' || text[7] != '-') return std::nullopt;
  const std::chrono::year_month_day date{
      std::chrono::year{digits(text, 0, 4)},
      std::chrono::month(static_cast<unsigned>(digits(text, 5, 2))),
      std::chrono::day(static_cast<unsigned>(digits(text, 8, 2)))};
  if (!date.ok()) return std::nullopt;
  const int64_t day = std::chrono::sys_days(date).time_since_epoch().count();
  if (text.size() == 10) return day * 86400;
  if (text.size() < 19 || (text[10] != ' ' && text[10] != 'T') || text[13] != ':' ||
      text[16] != ':') {
    return std::nullopt;
  }
  const int h = digits(text, 11, 2), m = digits(text, 14, 2), s = digits(text, 17, 2);
  if (h < 0 || h > 23 || m < 0 || m > 59 || s < 0 || s > 60) return std::nullopt;
  if (text.size() > 19 && text[19] != '.') return std::nullopt;
  for (const char c : text.substr(std::min<size_t>(20, text.size()))) {
    if (c < '0' || c > '9') return std::nullopt;
  }
  return day * 86400 + h * 3600 + m * 60 + s;
}

// The number that eight characters spell, if all are digits: pairs, fours, then all of them at
// once.
std::optional<uint64_t> eight_digits(const char* text) {
  uint64_t word;
  std::memcpy(&word, text, 8);
  word -= 0x3030303030303030;
  if (((word | (word + 0x7676767676767676)) & 0x8080808080808080) != 0) return std::nullopt;
  word = (word * 10 + (word >> 8)) & 0x00FF00FF00FF00FF;
  word = (word * 100 + (word >> 16)) & 0x0000FFFF0000FFFF;
  return (word * 10000 + (word >> 32)) & 0xFFFFFFFF;
}

// The high bit of each byte of word that equals the byte repeated in pattern.
uint64_t equal_bytes(uint64_t word, uint64_t pattern) {
  constexpr uint64_t kLow = 0x7F7F7F7F7F7F7F7F;
  const uint64_t x = word ^ pattern;
  return ~(((x & kLow) + kLow) | x | kLow);
}

}  // namespace

RowSplitter::RowSplitter(std::string_view text, const CsvDialect& dialect)
    : next_(text.data()),
      end_(text.data() + text.size()),
      first_(dialect.delimiter.at(0)),
      second_(dialect.delimiter.size() > 1 ? dialect.delimiter[1] : '\0'),
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
    const bool blank = row_.empty();
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

// Eight bytes at a time: most of the work of reading a log is done here.
void RowSplitter::split_plain() {
  // No more fields than this: they are stored without a check for room.
  if (fields_.size() <= row_.size()) fields_.resize(row_.size() + 1);
  std::string_view* field = fields_.data();
  const char* begin = row_.data();
  const char* end = begin + row_.size();
  const uint64_t pattern = 0x0101010101010101 * static_cast<unsigned char>(first_);
  const char second = second_;
  const auto end_field = [&](const char* delimiter) {
    if (second != '\0') {
      if (delimiter < begin) return;  // the second ':' of ":::"
      if (delimiter + 1 == end || delimiter[1] != second) return;
    }
    *field++ = {begin, static_cast<size_t>(delimiter - begin)};
    begin = delimiter + (second != '\0' ? 2 : 1);
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
    if (*p == first_) end_field(p);
  }
  *field++ = {begin, static_cast<size_t>(end - begin)};
  num_fields_ = static_cast<size_t>(field - fields_.data());
}

bool RowSplitter::at_delimiter(const char* p) const {
  return *p == first_ && (second_ == '\0' || (p + 1 < end_ && p[1] == second_));
}

// From next_ on, across newlines within quotes; leaves next_ after the row's newline.
const char* RowSplitter::split_quoted() {
  num_fields_ = 0;
  unescaped_used_ = 0;
  const char* start = next_;
  const char* p = next_;
  const auto at_line_end = [&] {
    return p == end_ || *p == '\n' || (*p == '\r' && (p + 1 == end_ || p[1] == '\n'));
  };
  for (;;) {
    if (p != end_ && *p == '"') {
      const char* begin = ++p;
      bool doubled = false;
      for (;; ++p) {
        p = static_cast<const char*>(std::memchr(p, '"', static_cast<size_t>(end_ - p)));
        if (p == nullptr) return "a quoted field is not closed";
        if (p + 1 == end_ || p[1] != '"') break;
        doubled = true;
        ++p;
      }
      const std::string_view quoted(begin, static_cast<size_t>(p - begin));
      add_field(doubled ? unescape(quoted) : quoted);
      ++p;
      if (!at_line_end() && !at_delimiter(p)) return "text follows a closing quote";
    } else {
      const char* begin = p;
      while (!at_line_end() && !at_delimiter(p)) ++p;
      add_field({begin, static_cast<size_t>(p - begin)});
    }
    if (at_line_end()) break;
    p += second_ != '\0' ? 2 : 1;
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

size_t whole_rows(std::string_view text, bool quotes) {
  const size_t last = text.rfind('\n');
  if (last == std::string_view::npos) return 0;
  if (!quotes || text.find('"') == std::string_view::npos) return last + 1;
  // An even number of quotes before a newline: it is outside of quotes. Search backwards.
  int64_t quotes_before = std::count(text.begin(), text.begin() + static_cast<int64_t>(last), '"');
  for (size_t newline = last;;) {
    if (quotes_before % 2 == 0) return newline + 1;
    const size_t previous = newline == 0 ? std::string_view::npos : text.rfind('\n', newline - 1);
    if (previous == std::string_view::npos) return last + 1;
    quotes_before -= std::count(text.begin() + static_cast<int64_t>(previous),
                                text.begin() + static_cast<int64_t>(newline), '"');
    newline = previous;
  }
}

std::string_view without_bom(std::string_view text, const std::string& file) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    throw_error<DataError>(
        "{} is UTF-16: convert it first, for example with iconv -f UTF-16 -t UTF-8", file);
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  return text;
}

std::optional<int64_t> parse_canonical_int64(std::string_view text) {
  const bool negative = text.starts_with('-');
  const std::string_view number = text.substr(negative ? 1 : 0);
  if (number.empty() || number.size() > 19) return std::nullopt;
  if (number[0] == '0' && (number.size() > 1 || negative)) return std::nullopt;
  uint64_t value = 0;
  std::string_view rest = number;
  if (rest.size() >= 8) {
    const auto eight = eight_digits(rest.data());
    if (!eight) return std::nullopt;
    value = *eight;
    rest.remove_prefix(8);
  }
  for (const char c : rest) {
    const auto digit = static_cast<unsigned>(c - '0');
    if (digit > 9) return std::nullopt;
    value = value * 10 + digit;
  }
  if (value > uint64_t{INT64_MAX} + (negative ? 1 : 0)) return std::nullopt;
  return static_cast<int64_t>(negative ? ~value + 1 : value);
}

std::optional<double> parse_double(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<int64_t> parse_time(std::string_view text) {
  text = trim(text);
  if (const auto number = parse_canonical_int64(text)) return number;
  if (const auto number = parse_double(text); number && std::abs(*number) < 9.0e18) {
    return static_cast<int64_t>(std::floor(*number));
  }
  return parse_iso8601(text);
}

std::string latin1_to_utf8(std::string_view text) {
  if (is_valid_utf8(text)) return std::string(text);
  std::string result;
  result.reserve(text.size() + text.size() / 8);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      result += c;
    } else {
      result += static_cast<char>(0xC0 | (byte >> 6));
      result += static_cast<char>(0x80 | (byte & 0x3F));
    }
  }
  return result;
}

}  // namespace seqfuse::data
