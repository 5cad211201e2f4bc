// What becomes of the matches of a pattern that cuts text.
#pragma once

#include <functional>
#include <string_view>

#include "text/json_fields.h"
#include "text/pattern.h"

namespace seqfuse::text {

enum class SplitBehavior {
  isolated,              // each match is a piece
  removed,               // matches are left out
  contiguous,            // neighbouring matches are one piece
  merged_with_previous,  // a match ends the piece before it
  merged_with_next,      // a match begins the piece after it
};

// "Isolated", "MergedWithPrevious", … Throws DataError.
SplitBehavior parse_split_behavior(const JsonField& behavior);

// Calls visit with the pieces that are not empty. invert: what lies between matches counts as matches,
// and the other way round.
void split_by(const Pattern& pattern, SplitBehavior behavior, bool invert, std::string_view text,
              const std::function<void(std::string_view piece)>& visit);

}  // namespace seqfuse::text
