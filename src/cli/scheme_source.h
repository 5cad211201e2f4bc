// seqfuse scheme --dump-source: what would be generated for a scheme.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "fusion/scheme.h"

namespace seqfuse::cli {

struct SourceShape {
  int64_t hidden, heads, inner, seq;
  DType dtype;
};

// Prints the CUDA source of each segment that can be generated, with its default tile; of the others a
// comment. Throws UsageError if the heads do not divide the width.
void print_sources(const fusion::Scheme& legal, const SourceShape& shape);

}  // namespace seqfuse::cli
