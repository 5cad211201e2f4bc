#include "ops/cpu/dropout_mask.h"

#include <cmath>

namespace seqfuse::ops::cpu {
namespace {

constexpr uint64_t kStream = 0x64726F706F757400;  // keeps dropout apart from other uses of a seed
constexpr int kCounters = 16;

// Philox{seed, kStream} at the 16 counters from first: words[lane * 16 + i] for counter first + i.
// It gives base/random.h's numbers, with each 32-bit word in the low half of a 64-bit one: the loop
// over counters then vectorises without moving words between lanes.
void philox_words(uint64_t seed, uint64_t first, uint32_t* words) {
  constexpr uint64_t kLow = 0xFFFFFFFF;
  for (uint64_t i = 0; i < kCounters; ++i) {
    uint64_t c0 = first + i, c1 = c0 >> 32, c2 = kStream, c3 = kStream >> 32;
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
    words[kCounters + i] = static_cast<uint32_t>(c1);
    words[2 * kCounters + i] = static_cast<uint32_t>(c2);
    words[3 * kCounters + i] = static_cast<uint32_t>(c3);
  }
}

}  // namespace

template <class T>
DropoutMask<T>::DropoutMask(uint64_t seed, double p)
    : seed_(seed),
      threshold_(static_cast<uint32_t>(std::min(std::round(p * 0x1p32), 0x1p32 - 1))),
      scale_(static_cast<T>(1 / (1 - p))) {}

template <class T>
void DropoutMask<T>::draw_block(int64_t block, T* factors) const {
  alignas(64) uint32_t words[kBlock];
  philox_words(seed_, static_cast<uint64_t>(block) * kCounters, words);
  for (int64_t e = 0; e < kBlock; ++e) factors[e] = words[e] < threshold_ ? T{0} : scale_;
}

template <class T>
void DropoutMask<T>::draw(int64_t first, int64_t count, T* factors) const {
  const int64_t last = first + count;
  for (int64_t e = first; e < last;) {
    const int64_t block = e / kBlock, skip = e % kBlock;
    const int64_t n = std::min(kBlock - skip, last - e);
    if (n == kBlock) {
      draw_block(block, factors);
    } else {
      T part[kBlock];
      draw_block(block, part);
      std::copy_n(part + skip, n, factors);
    }
    factors += n;
    e += n;
  }
}

template class DropoutMask<float>;
template class DropoutMask<double>;

}  // namespace seqfuse::ops::cpu
