// A warp looks up four keys at once, eight lanes each, then copies their rows one after the other, so
// that lookups and rows of many warps overlap.
#include "ops/kernels/hash_table/lookup.cuh"
#include "ops/kernels/hash_table/rows.h"

namespace seqfuse::ops::hash_table {
namespace {

constexpr int kFindThreads = 256;
constexpr int kKeysPerWarp = 32 / kLanes;

// T: float, or float4 if rows and columns allow it.
template <class T>
__global__ void __launch_bounds__(kFindThreads)
    find_rows_kernel(const __grid_constant__ FindRows p) {
  constexpr int64_t kItems = sizeof(T) / sizeof(float);
  const int64_t warp = (int64_t{blockIdx.x} * kFindThreads + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  const int64_t first = warp * kKeysPerWarp;
  if (first >= p.count) return;
  const int64_t i = first + lane / kLanes;
  int64_t slot = -1;
  // All lanes of a group have the same key, and only one lane sees its slot.
  if (i < p.count) look_up(p.table, p.keys[i], [&](int64_t found) { slot = found; }, [] {});
  __syncwarp();
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
    const int64_t other = __shfl_xor_sync(0xFFFFFFFFu, slot, step);
    slot = other > slot ? other : slot;
  }
  const unsigned missing =
      __ballot_sync(0xFFFFFFFFu, i < p.count && slot < 0 && lane % kLanes == 0);
  if (lane == 0 && missing != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(p.unknown),
              static_cast<unsigned long long>(__popc(missing)));
  }
  const int64_t columns = p.rows.dim / kItems;
#pragma unroll
  for (int k = 0; k < kKeysPerWarp; ++k) {
    const int64_t its = __shfl_sync(0xFFFFFFFFu, slot, k * kLanes);
    if (first + k >= p.count) break;
    const T* from = reinterpret_cast<const T*>(its < 0 ? p.missing : p.rows.row(its));
    T* to = reinterpret_cast<T*>(p.out + (first + k) * p.rows.dim);
    for (int64_t c = lane; c < columns; c += 32) to[c] = from[c];
  }
}

bool vector_aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % sizeof(float4) == 0;
}

}  // namespace

cudaError_t find_rows_cuda(const FindRows& p, cudaStream_t stream) {
  if (p.count == 0) return cudaSuccess;
  constexpr int64_t kKeysPerBlock = kFindThreads / 32 * kKeysPerWarp;
  const auto blocks = static_cast<unsigned>((p.count + kKeysPerBlock - 1) / kKeysPerBlock);
  const bool vectors = p.rows.dim % 4 == 0 && p.rows.stride % 4 == 0 &&
                       vector_aligned(p.rows.values) && vector_aligned(p.rows.others) &&
                       vector_aligned(p.missing) && vector_aligned(p.out);
  if (vectors) {
    find_rows_kernel<float4><<<blocks, kFindThreads, 0, stream>>>(p);
  } else {
    find_rows_kernel<float><<<blocks, kFindThreads, 0, stream>>>(p);
  }
  return cudaGetLastError();
}

}  // namespace seqfuse::ops::hash_table
