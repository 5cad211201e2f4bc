// The dropout factors of kernels/dropout.h, drawn on the fly. A thread draws the words of one
// counter, which belong to elements 16 apart; a warp exchanges them as bits. 32 consecutive
// counters cover 128 adjacent elements.
#pragma once

#include "base/philox.h"
#include "ops/kernels/step/seed.h"

namespace seqfuse::ops::cuda {

struct DropoutMask {
  Seed seed;
  uint32_t threshold;  // an element is dropped if its word is below this
  float scale;         // factor of elements that stay

  __device__ bool drops_any() const { return threshold > 0; }
  __device__ Philox philox() const { return {seed.get(), kDropoutStream}; }

  // The factor of a single element.
  __device__ float factor(int64_t element) const {
    const auto e = static_cast<uint64_t>(element);
    const auto words = philox()(16 * (e / 64) + e % 16);
    return words[e % 64 / 16] < threshold ? 0 : scale;
  }

  // Call from a whole warp. Bit i of lane n's result: element 128 chunk + 32 (n mod 4) + i is kept.
  __device__ uint32_t draw(int64_t chunk) const {
    return kept_bits(philox()(static_cast<uint64_t>(chunk) * 32 + threadIdx.x % 32));
  }

  // The same, given the words of counter 32 chunk + lane.
  __device__ uint32_t kept_bits(const PhiloxWords& words) const {
    const unsigned lane = threadIdx.x % 32;
    uint32_t kept[4];  // [word], bits by counter: 16 of the first 64 elements, 16 of the others
#pragma unroll
    for (int n = 0; n < 4; ++n) kept[n] = __ballot_sync(0xFFFFFFFF, words[n] >= threshold);
    const uint32_t first = lane & 1 ? kept[2] : kept[0], second = lane & 1 ? kept[3] : kept[1];
    return __byte_perm(first, second, lane & 2 ? 0x7632 : 0x5410);
  }
};

// base/philox.h with the keys of its rounds in shared memory: adding them up would
// cost many instructions, keeping them registers.
struct SharedPhilox {
  uint4 keys[5];  // two rounds each

  // Call from the whole block; contains a barrier.
  __device__ void set(const DropoutMask& mask) {
    if (mask.drops_any()) set_own(mask.philox());
    __syncthreads();
  }

  __device__ PhiloxWords operator()(uint64_t counter, uint64_t stream) const {
    uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
    uint32_t c2 = static_cast<uint32_t>(stream), c3 = static_cast<uint32_t>(stream >> 32);
    // One instruction; the compiler turns a 64-bit multiplication into two.
    const auto multiply = [](uint32_t a, uint32_t b, uint32_t& low, uint32_t& high) {
      asm("{ .reg .b64 p; mul.wide.u32 p, %2, %3; mov.b64 {%0, %1}, p; }"
          : "=r"(low), "=r"(high)
          : "r"(a), "r"(b));
    };
#pragma unroll
    for (const uint4& two : keys) {
      philox_round(c0, c1, c2, c3, two.x, two.y, multiply);
      philox_round(c0, c1, c2, c3, two.z, two.w, multiply);
    }
    return {{c0, c1, c2, c3}};
  }

 private:
  // The keys that this thread computes, if any.
  __device__ void set_own(const Philox& philox) {
    if (threadIdx.x >= 5) return;
    const auto low = static_cast<uint32_t>(philox.seed),
               high = static_cast<uint32_t>(philox.seed >> 32);
    const uint32_t first = 2 * threadIdx.x, second = first + 1;
    keys[threadIdx.x] = {low + first * kPhiloxWeyl0, high + first * kPhiloxWeyl1,
                         low + second * kPhiloxWeyl0, high + second * kPhiloxWeyl1};
  }
};

// The factors of up to Elements adjacent elements, drawn by the warp that uses them. words: kWords
// shared words of this warp.
template <int Elements>
class WarpMask {
 public:
  static constexpr int kWords = (Elements / 128 + 1) * 4 + 1;

  __device__ WarpMask(const DropoutMask& mask, const SharedPhilox& philox, uint32_t* words)
      : mask_(mask), philox_(philox), words_(words) {}

  // Elements first to first + count.
  __device__ void draw(int64_t first, int count) {
    if (!mask_.drops_any() || count <= 0) return;
    const auto place = static_cast<uint64_t>(first);
    skip_ = static_cast<unsigned>(place) % 128;
    const uint64_t chunk = place / 128;
    const unsigned chunks = (skip_ + static_cast<unsigned>(count) + 127) / 128;
    __syncwarp();  // earlier elements have been read
    if (chunks > 1) {
      const uint32_t bits = bits_of(chunk), more = bits_of(chunk + 1);  // with the same keys
      keep(0, bits);
      keep(1, more);
    }
    if (chunks % 2 == 1) keep(chunks - 1, bits_of(chunk + chunks - 1));
    __syncwarp();
  }

  // Bit k: whether element first + j + k is kept; k below 32.
  __device__ uint32_t kept(unsigned j) const {
    if (!mask_.drops_any()) return 0xFFFFFFFF;
    const unsigned place = skip_ + j;
    return __funnelshift_r(words_[place / 32], words_[place / 32 + 1], place % 32);
  }

  __device__ float factor(uint32_t kept, int k) const { return kept >> k & 1 ? mask_.scale : 0; }

 private:
  static_assert(Elements <= 256);  // at most three chunks

  __device__ uint32_t bits_of(uint64_t chunk) const {
    return mask_.kept_bits(philox_(chunk * 32 + threadIdx.x % 32, kDropoutStream));
  }

  __device__ void keep(unsigned c, uint32_t bits) {
    const unsigned lane = threadIdx.x % 32;
    if (lane < 4) words_[c * 4 + lane] = bits;
  }

  const DropoutMask& mask_;
  const SharedPhilox& philox_;
  uint32_t* words_;
  unsigned skip_ = 0;  // elements of the first chunk before `first`
};

}  // namespace seqfuse::ops::cuda
