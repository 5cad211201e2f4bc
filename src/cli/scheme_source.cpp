#include "cli/scheme_source.h"

#include <fmt/format.h>

#include <string>

#include "base/error.h"
#include "fusion/codegen/source.h"
#include "fusion/legality.h"

namespace seqfuse::cli {
namespace {

using fusion::index_of;
using fusion::Op;
using fusion::Segment;

int64_t columns_of(Segment segment, const SourceShape& shape) {
  switch (static_cast<Op>(segment.first)) {
    case Op::bias0_split:
      return 3 * shape.hidden;
    case Op::mask:
    case Op::softmax:
      return shape.seq;
    case Op::bias2_gelu:
      return shape.inner;
    default:
      return shape.hidden;
  }
}

std::string operators_of(Segment segment) {
  std::string names;
  for (int op = segment.first; op <= segment.last; ++op) {
    if (!names.empty()) names += ' ';
    names += fusion::kGraph[static_cast<size_t>(op)].name;
  }
  return names;
}

}  // namespace

void print_sources(const fusion::Scheme& legal, const SourceShape& shape) {
  SEQFUSE_CHECK_AS(UsageError, shape.hidden % shape.heads == 0,
                   "--shape: {} columns and {} heads; expected a multiple of the heads",
                   shape.hidden, shape.heads);
  for (const Segment& segment : legal.segments()) {
    if (!fusion::can_generate(segment)) {
      fmt::print("// [{}]: not generated\n\n", operators_of(segment));
      continue;
    }
    const fusion::RowKernel kernel{.run = segment,
                                   .dtype = shape.dtype,
                                   .columns = columns_of(segment, shape),
                                   .heads = shape.heads,
                                   .head_dim = shape.hidden / shape.heads};
    fmt::print("{}\n", fusion::source_of(kernel, fusion::default_tile(kernel)));
  }
}

}  // namespace seqfuse::cli
