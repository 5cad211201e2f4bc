// Products of mma.m16n8k16 whose operands are 16-byte loads: x is the 16 x 16 side, weights the 16 x 8
// side.
//
// A lane (g = lane / 4, t = lane % 4) loads neighbouring elements of row g of the weights, and the
// same elements of rows g and g + 8 of x. The products of a step may be added in any order of k, so
// both sides take the order in which the elements come.
#pragma once

#include "ops/kernels/common/row_kernels.cuh"

namespace seqfuse::ops::cuda {

template <class T>
__device__ __forceinline__ void multiply_add(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                             uint32_t a3, uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

// Four int8 as two pairs of T, exactly.
template <class T>
__device__ __forceinline__ void widen(uint32_t bytes, uint32_t& low, uint32_t& high) {
  if constexpr (std::is_same_v<T, __half>) {
    // 0x6400 | b is 1024 + b; b is v + 128.
    const uint32_t biased = bytes ^ 0x80808080;
    const __half2 offset = __half2half2(__ushort_as_half(0x6480));  // 1152
    const uint32_t a = __byte_perm(biased, 0x64646464, 0x4140),
                   b = __byte_perm(biased, 0x64646464, 0x4342);
    const __half2 x = __hsub2(reinterpret_cast<const __half2&>(a), offset),
                  y = __hsub2(reinterpret_cast<const __half2&>(b), offset);
    low = reinterpret_cast<const uint32_t&>(x);
    high = reinterpret_cast<const uint32_t&>(y);
  } else {
    const auto value = [&](int i) {
      return static_cast<float>(static_cast<int8_t>(bytes >> 8 * i));
    };
    const __nv_bfloat162 x = __floats2bfloat162_rn(value(0), value(1)),
                         y = __floats2bfloat162_rn(value(2), value(3));
    low = reinterpret_cast<const uint32_t&>(x);
    high = reinterpret_cast<const uint32_t&>(y);
  }
}

// The number of sums that share the products of a load, so that products need not wait for each other.
template <class W>
constexpr int kParts = 4 / sizeof(W);

// c[0] + ... += x times the weights of one load. x: the lane's words of rows g and, if kRows is 16, g + 8.
// c[.][0], c[.][1]: row g of x by rows 2 t and 2 t + 1 of the weights; c[.][2], c[.][3]: row g + 8.
template <class T, class W, int kRows>
__device__ __forceinline__ void multiply_load(float (&c)[kParts<W>][4], const uint4& weights,
                                              const uint32_t (&x)[kRows / 8][8 / sizeof(W)]) {
  const uint32_t words[4] = {weights.x, weights.y, weights.z, weights.w};
#pragma unroll
  for (int i = 0; i < static_cast<int>(4 / sizeof(W)); ++i) {
    uint32_t b0, b1;
    if constexpr (sizeof(W) == 2) {
      b0 = words[2 * i], b1 = words[2 * i + 1];
    } else {
      widen<T>(words[i], b0, b1);
    }
    const uint32_t a1 = kRows == 16 ? x[kRows / 8 - 1][2 * i] : 0,
                   a3 = kRows == 16 ? x[kRows / 8 - 1][2 * i + 1] : 0;
    multiply_add<T>(c[i % kParts<W>], x[0][2 * i], a1, x[0][2 * i + 1], a3, b0, b1);
  }
}

}  // namespace seqfuse::ops::cuda
