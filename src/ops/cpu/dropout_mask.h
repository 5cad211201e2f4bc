// The dropout factors of kernels/dropout.h, drawn on the fly.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/cpu/philox_words.h"

namespace seqfuse::ops::cpu {

template <class T>
class DropoutMask {
 public:
  DropoutMask(uint64_t seed, double p);

  // factors[i] = factor of element first + i: 0 or 1 / (1 - p).
  void draw(int64_t first, int64_t count, T* factors) const;

 private:
  static constexpr int64_t kBlock = kPhiloxWords;
  void draw_block(int64_t block, T* factors) const;

  uint64_t seed_;
  uint32_t threshold_;  // an element is dropped if its word is below this
  T scale_;
};

}  // namespace seqfuse::ops::cpu
