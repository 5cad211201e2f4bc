// Data for unicode_version.h.
#pragma once

#include <span>

namespace seqfuse::text {

struct StandIn {
  char32_t first, last;  // inclusive range of replaced characters
  char32_t by;
};
struct CharacterRange {
  char32_t first, last;
};

std::span<const StandIn> stand_ins();                    // in order of characters
std::span<const CharacterRange> outside_normal_forms();  // in order of characters

}  // namespace seqfuse::text
