// Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011). value = f(seed, stream,
// counter), so results do not depend on threads or on order, and a run resumes by its counters.
// Also for kernels: it includes little, since nvcc reads every header four times.
#pragma once

#include <array>
#include <cstdint>

namespace seqfuse {

struct Philox {
  uint64_t seed = 0;
  uint64_t stream = 0;  // purpose of the numbers, or the call; distinct streams never overlap

  // Four independent 32-bit numbers for one 64-bit counter.
  constexpr std::array<uint32_t, 4> operator()(uint64_t counter) const {
    uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
    uint32_t c2 = static_cast<uint32_t>(stream), c3 = static_cast<uint32_t>(stream >> 32);
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53} * c0, p1 = uint64_t{0xCD9E8D57} * c2;
      c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c1 = static_cast<uint32_t>(p1);
      c3 = static_cast<uint32_t>(p0);
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    return {c0, c1, c2, c3};
  }

  // Uniform in [0, n), n < 2^32: multiply-shift on one 32-bit word; bias below n / 2^32.
  static constexpr uint32_t below(uint32_t word, uint32_t n) {
    return static_cast<uint32_t>((uint64_t{word} * n) >> 32);
  }

  // Uniform in [0, 1) with 24 bits, exact in float.
  static constexpr float unit(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24F; }
};

}  // namespace seqfuse
