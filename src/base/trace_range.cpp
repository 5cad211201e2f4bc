#include "base/trace_range.h"

#ifdef SEQFUSE_HAS_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace seqfuse {

#ifdef SEQFUSE_HAS_NVTX
TraceRange::TraceRange(const char* name) {
  nvtxRangePushA(name);
}
TraceRange::~TraceRange() {
  nvtxRangePop();
}
#else
TraceRange::TraceRange(const char* /*name*/) {}
TraceRange::~TraceRange() = default;
#endif

}  // namespace seqfuse
