// A ring of stages in shared memory that filling warps fill with rows of weights and the other warps
// of the block empty. Fills run ahead of the products by as many stages as there are.
//
// With kBulk (SM 9.0) a row is one bulk copy, which one warp starts; else it is asynchronous copies of
// 16 bytes, which take the instructions of several warps.
#pragma once

#include "ops/kernels/common/sm80/ptx.cuh"

namespace seqfuse::ops::cuda {

// Rows of a stage begin at different banks, so that lanes that read 16 bytes of two rows meet none
// twice.
constexpr int kRowsOfStage = 8, kRowBytes = 2560, kRowPitch = kRowBytes + 64;
constexpr int kStageBytes = kRowsOfStage * kRowPitch;

// Bytes of the barriers of a ring.
constexpr int barrier_bytes(int stages) {
  return 2 * 8 * stages;
}

template <bool kBulk>
constexpr int kFillingWarps = kBulk ? 1 : 4;

template <bool kBulk>
class WeightRing {
 public:
  // memory, barriers: shared memory, of kStageBytes and 16 bytes for each stage. All threads of the
  // block must meet at a barrier after one of them has called init().
  __device__ WeightRing(char* memory, char* barriers, int stages)
      : memory_(sm80::shared_address(memory)),
        full_(sm80::shared_address(barriers)),
        empty_(full_ + 8 * stages),
        stages_(stages) {}

  __device__ void init(int emptying_warps) const {
    for (int i = 0; i < stages_; ++i) {
      sm80::init_arrivals(full_ + 8 * i, kBulk ? 1 : 32 * kFillingWarps<kBulk>);
      sm80::init_arrivals(empty_ + 8 * i, emptying_warps);
    }
#if __CUDA_ARCH__ >= 900
    if constexpr (kBulk) asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
#endif
  }

  // Each filling warp calls this with its number `warp`: copies `rows` rows of `bytes` bytes (a multiple of
  // 16), which lie `pitch` bytes apart, into the next stage, once that is empty.
  __device__ void fill(int warp, const char* from, int64_t pitch, int rows, int bytes) {
    const int lane = threadIdx.x % 32;
    const uint32_t full = full_ + 8 * stage_, to = memory_ + stage_ * kStageBytes;
    wait(empty_ + 8 * stage_, phase_ ^ 1);  // at first all are
    if constexpr (kBulk) {
      if (lane == 0) expect_bytes(full, rows * bytes);
      __syncwarp();
      if (lane < rows) copy_bulk(to + lane * kRowPitch, from + lane * pitch, bytes, full);
    } else {
      for (int row = warp; row < rows; row += kFillingWarps<kBulk>) {
#pragma unroll
        for (int i = 0; i < kRowBytes / 512; ++i) {
          const int at = (i * 32 + lane) * 16;
          if (at < bytes)
            sm80::copy_async(to + row * kRowPitch + at, from + row * pitch + at, true);
        }
      }
      asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];\n" ::"r"(full) : "memory");
    }
    advance();
  }

  // Each emptying warp calls this: takes the lane's 16 bytes of row lane / 4, at `at` and then every kStep
  // bytes, from the next stage, once that is full.
  template <int kStep, int kCount>
  __device__ void take(int at, uint4 (&weights)[kCount]) {
    wait(full_ + 8 * stage_, phase_);
    const int lane = threadIdx.x % 32;
    const uint32_t from = memory_ + stage_ * kStageBytes + lane / 4 * kRowPitch + at;
#pragma unroll
    for (int i = 0; i < kCount; ++i) weights[i] = sm80::load_shared_16(from + i * kStep);
    __syncwarp();
    if (lane == 0) arrive(empty_ + 8 * stage_);
    advance();
  }

 private:
  __device__ void advance() {
    if (++stage_ == stages_) stage_ = 0, phase_ ^= 1;
  }

  static __device__ void wait(uint32_t barrier, int parity) {
    if constexpr (kBulk) {
#if __CUDA_ARCH__ >= 900
      asm volatile(
          "{\n.reg .pred p;\nWAIT:\n"
          "mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
          "@p bra DONE;\nbra WAIT;\nDONE:\n}\n" ::"r"(barrier),
          "r"(parity)
          : "memory");
#endif
    } else {
      sm80::wait_arrivals(barrier, parity);
    }
  }

  static __device__ void arrive(uint32_t barrier) {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}\n" ::"r"(barrier)
                 : "memory");
  }

  static __device__ void expect_bytes(uint32_t barrier, int bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n.reg .b64 state;\n"
        "mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;\n}\n" ::"r"(barrier),
        "r"(bytes)
        : "memory");
#endif
  }

  // Weights are read once a token: they leave the second-level cache first.
  static __device__ void copy_bulk(uint32_t to, const char* from, int bytes, uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n.reg .b64 policy;\n"
        "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1], %2, [%3], policy;\n}\n" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
#endif
  }

  uint32_t memory_, full_, empty_;
  int stages_, stage_ = 0, phase_ = 0;
};

}  // namespace seqfuse::ops::cuda
