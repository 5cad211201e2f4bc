// Copies of tiles by the copy engine of SM 9.0: one thread starts a copy of 64 rows, and a barrier in
// shared memory counts the bytes that have arrived.
#pragma once

#include <cuda.h>

#include "ops/kernels/common/sm80/ptx.cuh"

namespace seqfuse::ops::sm90 {

// After init_arrivals() of barriers, by the same thread and before its first copy.
__device__ __forceinline__ void show_barriers_to_copies() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}

// Arrives, and makes the barrier's phase wait for so many bytes of copies as well.
__device__ __forceinline__ void expect_bytes(uint32_t barrier, int bytes) {
  asm volatile(
      "{\n.reg .b64 state;\n"
      "mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;\n}\n" ::"r"(barrier),
      "r"(bytes)
      : "memory");
}

// Waits until the phase of that parity is complete.
__device__ __forceinline__ void wait_bytes(uint32_t barrier, int parity) {
  uint32_t done = 0;
  while (!done) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

// Rows row, row + step, ... of a map (tensor_map.h) with that residue to a tile, 8192 bytes.
__device__ __forceinline__ void copy_tile(uint32_t tile, const CUtensorMap& map, int residue,
                                          int row, int head, int sequence, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];\n" ::"r"(tile),
      "l"(&map), "r"(barrier), "r"(0), "r"(residue), "r"(row), "r"(head), "r"(sequence)
      : "memory");
}

}  // namespace seqfuse::ops::sm90
