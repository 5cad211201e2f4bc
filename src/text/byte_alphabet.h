// The alphabet of byte-level tokenizers: one printable character per byte. Printable Latin-1 bytes
// represent themselves; the others take the characters from U+0100 on, in order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace seqfuse::text {

// The character of a byte, as UTF-8.
std::string letter_of_byte(uint8_t byte);

// The bytes that a token of such letters represents; nothing if it contains any other character.
// The token must be valid UTF-8.
std::optional<std::string> bytes_of_letters(std::string_view token);

}  // namespace seqfuse::text
