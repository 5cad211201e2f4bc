// UTF-8: validation with the offset of the first bad byte, characters, and text from bytes that
// arrive in pieces.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace seqfuse {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// The offset of the first byte that is not valid UTF-8; text.size() if all of it is.
size_t find_invalid_utf8(std::string_view text);

// The length in bytes of the first character of a text that is not empty; 0 if it is not UTF-8.
size_t character_length(std::string_view text);

// Text with U+FFFD for each maximal invalid part, as the Unicode standard recommends.
std::string replace_invalid_utf8(std::string_view text);

// The character at an offset of valid UTF-8, and its length in bytes.
struct Character {
  char32_t code = 0;
  size_t length = 0;
};
Character character_at(std::string_view text, size_t offset);

void append_utf8(std::string& text, char32_t code);

// Bytes in, whole characters out: holds back the start of a character until the rest arrives.
// Invalid parts become U+FFFD, as in replace_invalid_utf8 of all bytes together.
class Utf8Assembler {
 public:
  void push(std::string_view bytes, std::string& out);
  void finish(std::string& out);  // an incomplete character becomes U+FFFD

 private:
  std::string waiting_;  // at most 3 bytes
};

}  // namespace seqfuse
