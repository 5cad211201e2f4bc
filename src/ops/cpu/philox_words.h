// Philox{seed, stream} of base/random.h at kPhiloxCounters neighbouring counters, vectorised.
#pragma once

#include <cstdint>

namespace seqfuse::ops::cpu {

inline constexpr int kPhiloxCounters = 16;
inline constexpr int kPhiloxWords = 4 * kPhiloxCounters;

// words[n * 16 + i] = word n of counter first + i. Each 32-bit word sits in the low half of a
// 64-bit one, so the loop over counters vectorises without shuffles.
inline void philox_words(uint64_t seed, uint64_t stream, uint64_t first,
                         uint32_t (&words)[kPhiloxWords]) {
  constexpr uint64_t kLow = 0xFFFFFFFF;
  for (uint64_t i = 0; i < kPhiloxCounters; ++i) {
    uint64_t c0 = first + i, c1 = c0 >> 32, c2 = stream, c3 = stream >> 32;
    auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = 0xD2511F53 * (c0 & kLow), p1 = 0xCD9E8D57 * (c2 & kLow);
      c0 = (p1 >> 32) ^ c1 ^ k0;
      c2 = (p0 >> 32) ^ c3 ^ k1;
      c1 = p1;
      c3 = p0;
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    words[i] = static_cast<uint32_t>(c0);
    words[kPhiloxCounters + i] = static_cast<uint32_t>(c1);
    words[2 * kPhiloxCounters + i] = static_cast<uint32_t>(c2);
    words[3 * kPhiloxCounters + i] = static_cast<uint32_t>(c3);
  }
}

}  // namespace seqfuse::ops::cpu
