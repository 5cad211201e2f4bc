// A sequential random number generator for host code, based on Philox.
#pragma once

#include <cstdint>
#include <utility>

#include "base/philox.h"

namespace seqfuse {

// Satisfies UniformRandomBitGenerator.
class Random {
 public:
  using result_type = uint32_t;
  explicit Random(uint64_t seed, uint64_t stream = 0) : philox_{seed, stream} {}

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return UINT32_MAX; }

  result_type operator()() {
    if (used_ == 4) {
      block_ = philox_(counter_++);
      used_ = 0;
    }
    return block_[used_++];
  }

  // Uniform in [0, 1) with 53 bits.
  double unit() {
    const uint64_t high = (*this)();
    return static_cast<double>(((high << 32) | (*this)()) >> 11) * 0x1p-53;
  }

  // Uniform in [0, n); n > 0.
  uint64_t below(uint64_t n) {
    const uint64_t high = (*this)();
    const uint64_t word = (high << 32) | (*this)();
    return static_cast<uint64_t>((static_cast<unsigned __int128>(word) * n) >> 64);
  }

  double normal();  // mean 0, variance 1

  // Fisher-Yates; the same permutation on every platform (std::shuffle's is unspecified).
  template <class Range>
  void shuffle(Range& values) {
    using std::swap;
    for (uint64_t i = values.size(); i > 1; --i) swap(values[i - 1], values[below(i)]);
  }

 private:
  Philox philox_;
  uint64_t counter_ = 0;
  PhiloxWords block_{};
  int used_ = 4;
};

}  // namespace seqfuse
