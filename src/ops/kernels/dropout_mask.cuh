// The dropout factors of kernels/dropout.h, drawn where they are needed. A thread draws the words
// of one counter, which belong to elements 16 apart; a warp exchanges them as bits. 32 neighbouring
// counters hold the words of 128 neighbouring elements.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/random.h"
#include "ops/kernels/seed.h"

namespace seqfuse::ops::cuda {

struct DropoutMask {
  Seed seed;
  uint32_t threshold;  // words below it drop their element
  float scale;         // factor of the others

  DropoutMask(double p, Seed seed_in)
      : seed(seed_in),
        threshold(static_cast<uint32_t>(std::min(std::round(p * 0x1p32), 0x1p32 - 1))),
        scale(static_cast<float>(1 / (1 - p))) {}

  __device__ bool drops_any() const { return threshold > 0; }
  __device__ Philox philox() const { return {seed.get(), 0x64726F706F757400}; }

  // The factor of one element, by itself.
  __device__ float factor(int64_t element) const {
    const auto e = static_cast<uint64_t>(element);
    const auto words = philox()(16 * (e / 64) + e % 16);
    return words[e % 64 / 16] < threshold ? 0 : scale;
  }

  // For a whole warp: bit i of the result of lane n tells whether element 128 chunk + 32 (n mod 4)
  // + i is kept.
  __device__ uint32_t draw(int64_t chunk) const {
    const unsigned lane = threadIdx.x % 32;
    const auto words = philox()(static_cast<uint64_t>(chunk) * 32 + lane);
    uint32_t kept[4];  // [word], bits by counter: 16 of the first 64 elements, 16 of the others
#pragma unroll
    for (int n = 0; n < 4; ++n) kept[n] = __ballot_sync(0xFFFFFFFF, words[n] >= threshold);
    const uint32_t first = lane & 1 ? kept[2] : kept[0], second = lane & 1 ? kept[3] : kept[1];
    return __byte_perm(first, second, lane & 2 ? 0x7632 : 0x5410);
  }
};

// The factors of one row, drawn together by the Group threads that work on it: a warp, or the whole
// block. words: kWords shared words of the group's own.
template <int Group, int MaxDim>
class RowMask {
 public:
  static constexpr int kWords = (MaxDim / 128 + 1) * 4 + 1;

  // Elements first to first + dim.
  __device__ RowMask(const DropoutMask& mask, uint32_t* words) : mask_(mask), words_(words) {}

  __device__ void draw(int64_t first, int64_t dim) {
    if (!mask_.drops_any()) return;
    skip_ = static_cast<unsigned>(first % 128);
    const int64_t chunk = first / 128, chunks = (skip_ + dim + 127) / 128;
    sync();  // the row before this one has been read
    const int lane = threadIdx.x % 32;
    for (int64_t c = threadIdx.x % Group / 32; c < chunks; c += Group / 32) {
      const uint32_t bits = mask_.draw(chunk + c);
      if (lane < 4) words_[c * 4 + lane] = bits;
    }
    sync();
  }

  // Bit k: whether element j + k of the row is kept; k below 32.
  __device__ uint32_t kept(int64_t j) const {
    if (!mask_.drops_any()) return 0xFFFFFFFF;
    const unsigned place = skip_ + static_cast<unsigned>(j);
    return __funnelshift_r(words_[place / 32], words_[place / 32 + 1], place % 32);
  }

  __device__ float factor(uint32_t kept, int k) const { return kept >> k & 1 ? mask_.scale : 0; }

 private:
  static __device__ void sync() {
    if constexpr (Group == 32) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }

  const DropoutMask& mask_;
  uint32_t* words_;
  unsigned skip_ = 0;  // elements of the first chunk before the row
};

}  // namespace seqfuse::ops::cuda
