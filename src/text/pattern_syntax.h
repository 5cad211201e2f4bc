// Patterns of tokenizer.json are written for Oniguruma; PCRE2 reads them.
#pragma once

#include <string>
#include <string_view>

namespace seqfuse::text {

// The pattern in PCRE2's syntax, to be compiled with UTF, UCP and MULTILINE. Throws DataError that names
// the construct if the two libraries may read it in different ways and no translation is known.
std::string to_pcre2_syntax(std::string_view pattern);

}  // namespace seqfuse::text
