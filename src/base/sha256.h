// SHA-256 (FIPS 180-4): names of files by their content, where other processes trust the name.
#pragma once

#include <string>
#include <string_view>

namespace seqfuse {

// 64 hexadecimal digits.
std::string sha256(std::string_view bytes);

}  // namespace seqfuse
