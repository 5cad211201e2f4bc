// Files of token ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace seqfuse::cli {

// Raw little-endian int32, or numbers as text with commas or white space between them. Raw ids are never
// mistaken for text: below 2^24 each has a byte that is 0. Throws DataError.
std::vector<int64_t> read_ids(const std::string& file);

}  // namespace seqfuse::cli
