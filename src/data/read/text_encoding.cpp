#include "data/read/text_encoding.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "base/error.h"

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

// Length in bytes of the first character of text; 0 if it is not UTF-8.
size_t character_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const size_t length = lead < 0x80   ? 1
                        : lead < 0xC2 ? 0
                        : lead < 0xE0 ? 2
                        : lead < 0xF0 ? 3
                        : lead < 0xF5 ? 4
                                      : 0;
  if (length < 2) return length;
  if (length > text.size()) return 0;
  for (size_t k = 1; k < length; ++k) {
    if ((byte(k) & 0xC0) != 0x80) return 0;
  }
  // Overlong, a surrogate, or beyond U+10FFFF.
  if ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F) ||
      (lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F)) {
    return 0;
  }
  return length;
}

// Whether there is a CR without an LF.
bool has_lone_cr(std::string_view text) {
  for (size_t at = text.find('\r'); at != std::string_view::npos; at = text.find('\r', at + 1)) {
    if (at + 1 < text.size() && text[at + 1] != '\n') return true;
  }
  return false;
}

void append_utf8(char16_t character, std::string& out) {
  if (character < 0x80) {
    out += static_cast<char>(character);
  } else if (character < 0x800) {
    out += static_cast<char>(0xC0 | (character >> 6));
    out += static_cast<char>(0x80 | (character & 0x3F));
  } else {
    out += static_cast<char>(0xE0 | (character >> 12));
    out += static_cast<char>(0x80 | ((character >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (character & 0x3F));
  }
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  if (is_ascii(text)) return true;
  while (!text.empty()) {
    const size_t length = character_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
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
    std::string_view rest = row;
    while (const size_t length = character_length(rest)) rest.remove_prefix(length);
    const auto at = static_cast<size_t>(rest.data() - row.data());
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
    append_utf8(special ? kWindows1252[byte - 0x80] : char16_t{byte}, result);
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
