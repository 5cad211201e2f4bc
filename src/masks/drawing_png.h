// A mask as a PNG image: queries downwards, keys to the right.
#pragma once

#include <cstdint>
#include <string>

#include "masks/block_mask.h"

namespace seqfuse::masks {

// One sequence in the colours of draw_svg() (drawing.h), without a caption, every element drawn: at
// most 2048 pixels on a side, where a pixel of several elements has the strongest of their colours.
std::string draw_png(const BlockMask& mask, int64_t sequence);

}  // namespace seqfuse::masks
