// HTML escaping.
#pragma once

#include <string>
#include <string_view>

namespace seqfuse::report {

// Escapes text for element content and for attribute values in double or single quotes.
std::string escape(std::string_view text);

}  // namespace seqfuse::report
