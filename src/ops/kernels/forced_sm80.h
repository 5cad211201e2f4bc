// SEQFUSE_FORCE_SM80=1 in the environment: what newer devices have more than SM 8.0 is not used, to
// try on them what an A100 runs.
#pragma once

#include <cstdlib>

namespace seqfuse::ops {

inline bool sm80_is_forced() {
  static const char* const force = std::getenv("SEQFUSE_FORCE_SM80");
  return force && force[0] == '1';
}

}  // namespace seqfuse::ops
