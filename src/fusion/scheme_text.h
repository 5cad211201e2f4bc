// Schemes as people write them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fusion/scheme.h"

namespace seqfuse::fusion {

// A number from 0 to 65535, or 16 characters 0 or 1, as a number. What begins with 0 and is longer, or has
// six characters 0 or 1 and more, is meant as characters. Throws UsageError.
int64_t read_number(std::string_view text);

// Segments by positions 1 to 15, ascending: "1-2,3-4", or as printed: "1 2 3 4", in one piece or several.
// "none": no segment. Throws UsageError.
std::vector<Segment> read_segments(std::span<const std::string> texts);

// "NUMBER CHARACTER0 SEGMENTS [START END]...": the fused segments, by positions 1 to 15.
std::string printed(int64_t number, const Scheme& scheme);

// The operators in one line, fused segments in brackets.
std::string drawn(const Scheme& scheme);

}  // namespace seqfuse::fusion
