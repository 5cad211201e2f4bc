// Fragments of mma.m16n8k16 from 16-byte loads of weights and of x.
//
// A lane (g = lane / 4, t = lane % 4) loads kLoad neighbouring elements of row g, and of row g + 8,
// and the same elements of column g of x. The products of a step may be added in any order of k, so
// both sides take the order in which the elements come.
#pragma once

#include "ops/kernels/common/row_kernels.cuh"

namespace seqfuse::ops::cuda {

// Weights are read once: they stay out of the first-level cache.
__device__ __forceinline__ uint4 load_weights(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

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

// c += rows of weights times columns of x; x: the lane's words of one step.
template <class T, class W, int kColumns>
__device__ __forceinline__ void multiply_step(float (&c)[kColumns / 8][4], const uint4& top,
                                              const uint4& bottom,
                                              const uint32_t (&x)[kColumns / 8][8 / sizeof(W)]) {
  const uint32_t rows[2][4] = {{top.x, top.y, top.z, top.w},
                               {bottom.x, bottom.y, bottom.z, bottom.w}};
#pragma unroll
  for (int i = 0; i < static_cast<int>(4 / sizeof(W)); ++i) {
    uint32_t a[4];
    if constexpr (sizeof(W) == 2) {
      a[0] = rows[0][2 * i], a[1] = rows[1][2 * i];
      a[2] = rows[0][2 * i + 1], a[3] = rows[1][2 * i + 1];
    } else {
      widen<T>(rows[0][i], a[0], a[2]);
      widen<T>(rows[1][i], a[1], a[3]);
    }
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n)
      multiply_add<T>(c[n], a[0], a[1], a[2], a[3], x[n][2 * i], x[n][2 * i + 1]);
  }
}

}  // namespace seqfuse::ops::cuda
