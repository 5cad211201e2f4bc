// The seed of an operator's random numbers.
#pragma once

#include <cstdint>

namespace seqfuse::ops {

struct Seed {
  constexpr Seed(uint64_t value_in, const uint64_t* place_in = nullptr)  // NOLINT: a number is one
      : value(value_in), place(place_in) {}
  constexpr uint64_t get() const { return place ? *place : value; }

  uint64_t value;
  // CUDA only: GPU address to read the seed from. Null: use value.
  const uint64_t* place;
};

}  // namespace seqfuse::ops
