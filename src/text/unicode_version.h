// Hugging Face's tokenizers bring their own Unicode data; ours is that of PCRE2 (Unicode 14 or newer)
// and utf8proc, which differs for a few thousand characters. These functions hide the difference. Their
// tables are made by tools/unicode_tables.py.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace seqfuse::text {

// For matching patterns: the text with other characters in place of those whose general category
// changed after Unicode 14, and of U+180E, which is a space for PCRE2 alone. A stand-in has the category
// that the tokenizers see, the same length in bytes, and for ideographs the same script. Nothing if no
// character needs one. The text is valid UTF-8.
std::optional<std::string> with_stand_ins(std::string_view text);

// Whether the tokenizers' normal forms (NFC and the like) leave the character as it is and take it for
// a base character that combines with nothing, while newer Unicode data does not.
bool is_outside_normal_forms(char32_t code);

}  // namespace seqfuse::text
