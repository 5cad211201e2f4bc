// CUDA source of generated kernels.
#pragma once

#include <string>

#include "fusion/codegen/row_kernel.h"

namespace seqfuse::fusion {

// Source that NVRTC compiles without any header, for SM 8.0 and newer: one function, extern "C", called
// name_of(kernel.run). A block is tile.threads threads; the grid has rows / tile.rows blocks, rounded up.
// Values are float32 between operators and rounded once, at the end. A row of a softmax that sees nothing
// is 0. Throws Error if the tile does not fit.
std::string source_of(const RowKernel& kernel, const Tile& tile);

}  // namespace seqfuse::fusion
