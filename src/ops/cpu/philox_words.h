// Philox{seed, stream} at kPhiloxCounters neighbouring counters, vectorised.
#pragma once

#include <cstdint>

#include "base/philox.h"

namespace seqfuse::ops::cpu {

inline constexpr int kPhiloxCounters = 16;
inline constexpr int kPhiloxWords = 4 * kPhiloxCounters;

// words[n * 16 + i] = word n of counter first + i. Each 32-bit word sits in the low half of a
// 64-bit one, so the loop over counters vectorises without shuffles.
inline void philox_words(uint64_t seed, uint64_t stream, uint64_t first,
                         uint32_t (&words)[kPhiloxWords]) {
  const auto multiply = [](uint64_t a, uint64_t b, uint64_t& low, uint64_t& high) {
    low = a * (b & 0xFFFFFFFF);
    high = low >> 32;
  };
  for (uint64_t i = 0; i < kPhiloxCounters; ++i) {
    uint64_t c0 = first + i, c1 = c0 >> 32, c2 = stream, c3 = stream >> 32;
    auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      philox_round(c0, c1, c2, c3, k0, k1, multiply);
      k0 += kPhiloxWeyl0;
      k1 += kPhiloxWeyl1;
    }
    words[i] = static_cast<uint32_t>(c0);
    words[kPhiloxCounters + i] = static_cast<uint32_t>(c1);
    words[2 * kPhiloxCounters + i] = static_cast<uint32_t>(c2);
    words[3 * kPhiloxCounters + i] = static_cast<uint32_t>(c3);
  }
}

}  // namespace seqfuse::ops::cpu
