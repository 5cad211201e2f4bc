// The encodings of text: everything inside is UTF-8; what is not is refused or converted.
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
// Why a row cannot be text, "" if it can: bytes that are not UTF-8, NUL, a lone CR without quotes.
std::string unreadable(std::string_view row);

// Text of an encoding as UTF-8.
std::string to_utf8(std::string_view text, Encoding encoding);

// Without a UTF-8 byte order mark. Throws DataError for UTF-16, naming the file.
std::string_view without_bom(std::string_view text, const std::string& file);

// The beginning of a text for a message: other bytes than printable UTF-8 as "\xE9".
std::string excerpt(std::string_view text);

}  // namespace seqfuse::data
