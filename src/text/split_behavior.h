// How a splitting pattern's matches are kept or dropped.
#pragma once

#include <functional>
#include <string_view>

#include "text/json_fields.h"
#include "text/pattern.h"

namespace seqfuse::text {

enum class SplitBehavior {
  isolated,              // each match is a piece
  removed,               // matches are dropped
  contiguous,            // adjacent matches form one piece
  merged_with_previous,  // a match is appended to the piece before it
  merged_with_next,      // a match is prepended to the piece after it
};

// "Isolated", "MergedWithPrevious", … Throws DataError.
SplitBehavior parse_split_behavior(const JsonField& behavior);

// Calls visit with the non-empty pieces. invert: swaps matches and the text between them.
void split_by(const Pattern& pattern, SplitBehavior behavior, bool invert, std::string_view text,
              const std::function<void(std::string_view piece)>& visit);

}  // namespace seqfuse::text
