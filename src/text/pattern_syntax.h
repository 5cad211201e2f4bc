// Translates patterns of tokenizer.json from Oniguruma's syntax to PCRE2's.
#pragma once

#include <string>
#include <string_view>

namespace seqfuse::text {

// The pattern in PCRE2's syntax, for compilation with UTF, UCP and MULTILINE. Throws DataError
// naming the construct if the libraries may interpret it differently and no translation is known.
std::string to_pcre2_syntax(std::string_view pattern);

}  // namespace seqfuse::text
