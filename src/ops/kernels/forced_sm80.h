// SEQFUSE_FORCE_SM80=1 in the environment: newer devices take the shapes of kernels and the shared
// memory of an A100, to try those. Instructions remain those that the code was compiled for.
#pragma once

#include <cstdlib>

namespace seqfuse::ops {

inline bool sm80_is_forced() {
  static const char* const force = std::getenv("SEQFUSE_FORCE_SM80");
  return force && force[0] == '1';
}

}  // namespace seqfuse::ops
