// Matrix products of a warp group, four warps, on SM 9.0: wgmma, which reads tiles of 16-bit elements
// in shared memory itself and works on while the warps do something else. Compiled for sm_90a only.
//
// Between begin_products() and the end of wait_products() nobody may touch the operands. Tiles are
// written by ordinary stores or copy_async: call show_to_products() in the writing threads, then a
// barrier, before a product reads them.
#pragma once

#include "ops/kernels/common/sm80/tile.cuh"

namespace seqfuse::ops::sm90 {

using sm80::Accumulators;
using sm80::Tile;

// Makes this thread's writes to shared memory, and its copies that have arrived, visible to products.
__device__ __forceinline__ void show_to_products() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

// Before the first product after registers of its operands were written.
__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
}

// Ties registers to this place: the compiler moves no use of them across it.
template <int kRows, int kColumns>
__device__ __forceinline__ void hold(Accumulators<kRows, kColumns>& acc) {
#pragma unroll
  for (int r = 0; r < kRows / 16; ++r)
#pragma unroll
    for (int c = 0; c < kColumns / 8; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(acc.v[r][c][e])::"memory");
}

// Rows [16 of each warp, 64] of 16-bit elements in registers: fragments of mma.m16n8k16.
using Fragments = uint32_t[4][4];

template <class T>
__device__ __forceinline__ void to_fragments(Fragments& to, const Accumulators<16, 64>& from) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float* x = &from.v[0][2 * k + e / 2][e % 2 * 2];
      to[k][e] = sm80::pack<T>(x[0], x[1]);
    }
}

__device__ __forceinline__ void hold(Fragments& a) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int e = 0; e < 4; ++e) asm volatile("" : "+r"(a[k][e])::"memory");
}

// Where a tile is, as wgmma wants it: a Tile<64>, whose permutation of chunks is the hardware's
// 128-byte swizzle, at a multiple of 1024 bytes. The same for both: 8 rows are 1024 bytes. Add
// kColumns16 to go on by 16 columns, kRows16 by 16 rows.
__device__ __forceinline__ uint64_t descriptor(uint32_t tile) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kBetweenRowGroups = uint64_t{Tile<64>::kRowBytes * 8 >> 4} << 32;
  constexpr uint64_t kUnused = uint64_t{1} << 16;
  return kSwizzle128 | kBetweenRowGroups | kUnused | (tile & 0x3ffffu) >> 4;
}
constexpr uint64_t kColumns16 = 32 >> 4, kRows16 = 16 * Tile<64>::kRowBytes >> 4;

// An operand list of 32 accumulators.
#define SEQFUSE_ACCUMULATORS_32                                                       \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define SEQFUSE_ACCUMULATORS_OF(c) "+f"(v[c][0]), "+f"(v[c][1]), "+f"(v[c][2]), "+f"(v[c][3])
#define SEQFUSE_BIND_32                                                                   \
  SEQFUSE_ACCUMULATORS_OF(0), SEQFUSE_ACCUMULATORS_OF(1), SEQFUSE_ACCUMULATORS_OF(2),     \
      SEQFUSE_ACCUMULATORS_OF(3), SEQFUSE_ACCUMULATORS_OF(4), SEQFUSE_ACCUMULATORS_OF(5), \
      SEQFUSE_ACCUMULATORS_OF(6), SEQFUSE_ACCUMULATORS_OF(7)

// acc [16 rows of each warp, 64] = or += A B^T over 16 columns: A and B are 64 rows of tiles.
template <class T>
__device__ __forceinline__ void multiply_rows_16(Accumulators<16, 64>& acc, uint64_t a, uint64_t b,
                                                 bool adds) {
  auto& v = acc.v[0];
  const int32_t add = adds;
  if constexpr (kIsSame<T, __nv_bfloat16>) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " SEQFUSE_ACCUMULATORS_32
        ", %32, %33, p, 1, 1, 0, 0;\n}\n"
        : SEQFUSE_BIND_32
        : "l"(a), "l"(b), "r"(add));
  } else {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " SEQFUSE_ACCUMULATORS_32
        ", %32, %33, p, 1, 1, 0, 0;\n}\n"
        : SEQFUSE_BIND_32
        : "l"(a), "l"(b), "r"(add));
  }
}

// acc [16 rows of each warp, 64] += A B over 16 rows of the tile B. A: fragments of mma.m16n8k16.
template <class T>
__device__ __forceinline__ void multiply_columns_16(Accumulators<16, 64>& acc,
                                                    const uint32_t (&a)[4], uint64_t b) {
  auto& v = acc.v[0];
  if constexpr (kIsSame<T, __nv_bfloat16>) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " SEQFUSE_ACCUMULATORS_32
                 ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"
                 : SEQFUSE_BIND_32
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  } else {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " SEQFUSE_ACCUMULATORS_32
                 ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"
                 : SEQFUSE_BIND_32
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
}

// acc [16 rows of each warp, 64] = A B^T for tiles of 64 rows and 64 columns.
template <class T>
__device__ __forceinline__ void multiply_rows(Accumulators<16, 64>& acc, uint64_t a, uint64_t b) {
#pragma unroll
  for (int d = 0; d < 4; ++d)
    multiply_rows_16<T>(acc, a + d * kColumns16, b + d * kColumns16, d > 0);
}

// acc [16 rows of each warp, 64] += A B for a tile B of 64 rows and 64 columns.
template <class T>
__device__ __forceinline__ void add_product(Accumulators<16, 64>& acc, const Fragments& a,
                                            uint64_t b) {
#pragma unroll
  for (int k = 0; k < 4; ++k) multiply_columns_16<T>(acc, a[k], b + k * kRows16);
}

#undef SEQFUSE_ACCUMULATORS_32
#undef SEQFUSE_ACCUMULATORS_OF
#undef SEQFUSE_BIND_32

}  // namespace seqfuse::ops::sm90
