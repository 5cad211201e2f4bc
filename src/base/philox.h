// Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011). value = f(seed, stream,
// counter), so results do not depend on threads or on order, and a run resumes by its counters.
// For the host, for kernels and for NVRTC.
#pragma once

#include "base/fixed_width.h"

namespace seqfuse {

struct PhiloxWords {
  uint32_t word[4];
  constexpr uint32_t operator[](uint64_t i) const { return word[i]; }
  constexpr bool operator==(const PhiloxWords&) const = default;
};

// What is added to the two halves of the key after each round.
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9, kPhiloxWeyl1 = 0xBB67AE85;

// One of the ten rounds on the counter c0 to c3. Word holds 32 bits or more; bits above the low 32
// are ignored and may be set afterwards. multiply(a, b, low, high) sets the halves of the product
// of a, 32 bits, and the low 32 bits of b.
template <class Word, class Multiply>
constexpr void philox_round(Word& c0, Word& c1, Word& c2, Word& c3, uint32_t k0, uint32_t k1,
                            Multiply multiply) {
  Word low0{}, high0{}, low1{}, high1{};
  multiply(0xD2511F53, c0, low0, high0);
  multiply(0xCD9E8D57, c2, low1, high1);
  c0 = high1 ^ c1 ^ k0;
  c2 = high0 ^ c3 ^ k1;
  c1 = low1;
  c3 = low0;
}

struct Philox {
  uint64_t seed = 0;
  uint64_t stream = 0;  // purpose of the numbers, or the call; distinct streams never overlap

  // Four independent 32-bit numbers for one 64-bit counter.
  constexpr PhiloxWords operator()(uint64_t counter) const {
    uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
    uint32_t c2 = static_cast<uint32_t>(stream), c3 = static_cast<uint32_t>(stream >> 32);
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    const auto multiply = [](uint32_t a, uint32_t b, uint32_t& low, uint32_t& high) {
      const uint64_t product = uint64_t{a} * b;
      low = static_cast<uint32_t>(product);
      high = static_cast<uint32_t>(product >> 32);
    };
    for (int round = 0; round < 10; ++round) {
      philox_round(c0, c1, c2, c3, k0, k1, multiply);
      k0 += kPhiloxWeyl0;
      k1 += kPhiloxWeyl1;
    }
    return {{c0, c1, c2, c3}};
  }

  // Uniform in [0, n), n < 2^32: multiply-shift on one 32-bit word; bias below n / 2^32.
  static constexpr uint32_t below(uint32_t word, uint32_t n) {
    return static_cast<uint32_t>((uint64_t{word} * n) >> 32);
  }

  // Uniform in [0, 1) with 24 bits, exact in float.
  static constexpr float unit(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24F; }
};

}  // namespace seqfuse
