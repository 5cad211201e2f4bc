#include "ops/cpu/dropout_mask.h"

#include "ops/cpu/philox_words.h"
#include "ops/kernels/step/dropout.h"

namespace seqfuse::ops::cpu {

template <class T>
DropoutMask<T>::DropoutMask(uint64_t seed, double p)
    : seed_(seed), threshold_(dropout_threshold(p)), scale_(static_cast<T>(1 / (1 - p))) {}

template <class T>
void DropoutMask<T>::draw_block(int64_t block, T* factors) const {
  uint32_t words[kBlock];
  philox_words(seed_, kDropoutStream, static_cast<uint64_t>(block) * kPhiloxCounters, words);
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
