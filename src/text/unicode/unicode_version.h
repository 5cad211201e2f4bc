// Hugging Face's tokenizers ship their own Unicode data; ours comes from PCRE2 (Unicode 14 or
// newer) and utf8proc, and differs for a few thousand characters. These functions hide the
// difference. tools/unicode_tables.py generates their tables.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace seqfuse::text {

// For pattern matching: replaces characters whose general category changed after Unicode 14, and
// U+180E, which only PCRE2 treats as a space. A stand-in has the category that the tokenizers see,
// the same length in bytes and, for ideographs, the same script. Returns nothing if no character
// needs one. The text must be valid UTF-8.
std::optional<std::string> with_stand_ins(std::string_view text);

// Whether the tokenizers' normal forms (NFC etc.) leave the character unchanged and treat it as a
// base character that combines with nothing, unlike newer Unicode data.
bool is_outside_normal_forms(char32_t code);

}  // namespace seqfuse::text
