// The seed of an operator's random numbers, and Philox's stream for each kind of operator, which
// keeps operators of the same seed apart.
#pragma once

#include "base/fixed_width.h"

namespace seqfuse::ops {

inline constexpr uint64_t kDropoutStream = 0x64726F706F757400;
inline constexpr uint64_t kSampleStream = 0x73616D706C657300;

struct Seed {
  constexpr Seed(uint64_t value_in, const uint64_t* place_in = nullptr)  // NOLINT: a number is one
      : value(value_in), place(place_in) {}
  constexpr uint64_t get() const { return place ? *place : value; }

  uint64_t value;
  // CUDA only: where on the GPU the seed is read instead. Null: value is the seed.
  const uint64_t* place;
};

}  // namespace seqfuse::ops
