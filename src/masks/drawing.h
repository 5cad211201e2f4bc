// A mask as a picture: queries downwards, keys to the right. Masks are in blocks of neighbouring tokens:
// BlockMask(mask, 1).
#pragma once

#include <string>

#include "masks/block_mask.h"

namespace seqfuse::masks {

// An SVG image of one sequence: full blocks in one colour, allowed elements of partial blocks in
// another on a tint, empty blocks white. With more than 4096 queries or keys, partial blocks are
// drawn whole. caption: a line below it.
std::string draw_svg(const BlockMask& mask, int64_t sequence, const std::string& caption);

}  // namespace seqfuse::masks
