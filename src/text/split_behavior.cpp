#include "text/split_behavior.h"

#include <optional>
#include <string>

namespace seqfuse::text {

SplitBehavior parse_split_behavior(const JsonField& behavior) {
  const std::string name = behavior.text();
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  behavior.fail("Isolated, Removed, Contiguous, MergedWithPrevious or MergedWithNext");
}

void split_by(const Pattern& pattern, SplitBehavior behavior, bool invert, std::string_view text,
              const std::function<void(std::string_view piece)>& visit) {
  std::optional<std::string_view> piece;  // grows until a segment starts the next one
  bool previous_match = false;            // the last segment was a match
  const auto joins = [&](bool is_match) {
    switch (behavior) {
      case SplitBehavior::contiguous:
        return is_match == previous_match;
      case SplitBehavior::merged_with_previous:
        return is_match && !previous_match;
      case SplitBehavior::merged_with_next:
        return !is_match && previous_match;
      default:
        return false;
    }
  };
  const auto finish_piece = [&] {
    if (piece && !piece->empty()) visit(*piece);
    piece.reset();
  };
  pattern.split(text, [&](std::string_view segment, bool found) {
    const bool is_match = found != invert;
    if (piece && joins(is_match)) {
      piece = std::string_view(piece->data(), piece->size() + segment.size());
    } else {
      finish_piece();
      if (behavior != SplitBehavior::removed || !is_match) piece = segment;
    }
    previous_match = is_match;
  });
  finish_piece();
}

}  // namespace seqfuse::text
