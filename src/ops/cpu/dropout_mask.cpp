#include "ops/cpu/dropout_mask.h"

#include <cmath>

#include "ops/cpu/philox_words.h"

namespace seqfuse::ops::cpu {
namespace {

constexpr uint64_t kStream = 0x64726F706F757400;  // separates dropout from other uses of a seed

}  // namespace

template <class T>
DropoutMask<T>::DropoutMask(uint64_t seed, double p)
    : seed_(seed),
      threshold_(static_cast<uint32_t>(std::min(std::round(p * 0x1p32), 0x1p32 - 1))),
      scale_(static_cast<T>(1 / (1 - p))) {}

template <class T>
void DropoutMask<T>::draw_block(int64_t block, T* factors) const {
  uint32_t words[kBlock];
  philox_words(seed_, kStream, static_cast<uint64_t>(block) * kPhiloxCounters, words);
  const uint32_t threshold = threshold_;  // local copies; a member would keep the loop scalar
  const T scale = scale_;
  for (int64_t e = 0; e < kBlock; ++e) factors[e] = words[e] < threshold ? T{0} : scale;
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
