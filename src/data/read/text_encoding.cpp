#include "data/read/text_encoding.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "base/utf8.h"

namespace seqfuse::data {
namespace {

constexpr size_t kExcerpt = 60;

// Unicode of the bytes 0x80 to 0x9F.
constexpr std::array<char16_t, 32> kWindows1252 = {
    0x20AC, 0x0081, 0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160,
    0x2039, 0x0152, 0x008D, 0x017D, 0x008F, 0x0090, 0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
    0x2013, 0x2014, 0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0x009D, 0x017E, 0x0178};

bool is_ascii(std::string_view text) {
  uint64_t all = 0;
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    all |= word;
  }
  for (; i < text.size(); ++i) all |= static_cast<unsigned char>(text[i]);
  return (all & 0x8080808080808080) == 0;
}

// Whether there is a CR without an LF.
bool has_lone_cr(std::string_view text) {
  for (size_t at = text.find('\r'); at != std::string_view::npos; at = text.find('\r', at + 1)) {
    if (at + 1 < text.size() && text[at + 1] != '\n') return true;
  }
  return false;
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  return is_ascii(text) || find_invalid_utf8(text) == text.size();
}

bool is_readable(std::string_view text) {
  const bool has_nul = std::memchr(text.data(), '\0', text.size()) != nullptr;
  return !has_nul && is_valid_utf8(text) && !has_lone_cr(text);
}

std::string unreadable(std::string_view row) {
  if (row.find('\0') != std::string_view::npos) {
    return fmt::format("the row '{}' holds a NUL byte: is the file UTF-16 or binary?",
                       excerpt(row));
  }
  if (!is_valid_utf8(row)) {
    const size_t at = find_invalid_utf8(row);
    size_t begin = at - std::min<size_t>(at, 20);
    while (begin < at && (static_cast<unsigned char>(row[begin]) & 0xC0) == 0x80) ++begin;
    return fmt::format("'{}' is not UTF-8; --encoding latin1 or windows-1252 reads those encodings",
                       excerpt(row.substr(begin, 30)));
  }
  if (row.find('"') == std::string_view::npos && row.find('\r') != std::string_view::npos) {
    return fmt::format("the row '{}' holds a CR without LF: rows must end with LF or CRLF",
                       excerpt(row));
  }
  return "";
}

std::string to_utf8(std::string_view text, Encoding encoding) {
  if (encoding == Encoding::utf8 || is_ascii(text) ||
      (encoding == Encoding::utf8_or_latin1 && is_valid_utf8(text))) {
    return std::string(text);
  }
  std::string result;
  result.reserve(text.size() + text.size() / 8);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool special = encoding == Encoding::windows_1252 && byte >= 0x80 && byte < 0xA0;
    append_utf8(result, special ? kWindows1252[byte - 0x80] : char16_t{byte});
  }
  return result;
}

std::string_view without_bom(std::string_view text, const std::string& file) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    throw_error<DataError>(
        "{} is UTF-16: convert it first, for example with iconv -f UTF-16 -t UTF-8", file);
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  return text;
}

std::string excerpt(std::string_view text) {
  std::string result;
  while (!text.empty() && result.size() < kExcerpt) {
    const size_t length = character_length(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    if (length == 0 || byte < 0x20 || byte == 0x7F) {
      result += fmt::format("\\x{:02X}", byte);
      text.remove_prefix(1);
    } else {
      result += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  if (!text.empty()) result += "...";
  return result;
}

}  // namespace seqfuse::data
