// Text encodings. Internally all text is UTF-8; other input is converted or refused.
#pragma once

#include <string>
#include <string_view>

namespace seqfuse::data {

enum class Encoding {
  utf8,
  latin1,
  windows_1252,    // its five unassigned bytes become control characters, as in web browsers
  utf8_or_latin1,  // UTF-8 if all of the text is valid, else Latin-1
};

bool is_valid_utf8(std::string_view text);

// True if no row of the text can be refused by unreadable(). Fast: for whole chunks.
bool is_readable(std::string_view text);
// Why a row is not text (bytes that are not UTF-8, NUL, a CR without LF outside quotes), or "".
std::string unreadable(std::string_view row);

// Converts text from an encoding to UTF-8.
std::string to_utf8(std::string_view text, Encoding encoding);

// Removes a UTF-8 byte order mark. Throws DataError for UTF-16, naming the file.
std::string_view without_bom(std::string_view text, const std::string& file);

// The beginning of a text for a message; bytes that are not printable UTF-8 appear as "\xE9".
std::string excerpt(std::string_view text);

}  // namespace seqfuse::data
