// mma.sync and cp.async. A block of four warps computes a tile of the result, each warp a quarter.
// Two blocks share an SM, so that one multiplies while the other runs its epilogue.
//
// Slices of a and b along k go through a ring of stages in shared memory, filled kStages - 1 slices
// ahead. Fragments for the next 16 of k are read while the current ones are multiplied.
#include "ops/kernels/common/sm80/tile.cuh"
#include "ops/kernels/gemm/gemm_silu_variant.h"
#include "ops/kernels/gemm/silu.cuh"

namespace seqfuse::ops {
namespace {

using namespace sm80;

constexpr int kRows = 128, kColumns = 128, kSlice = 32, kStages = 4;
constexpr int kThreads = 128, kBlocks = 2;        // blocks per SM
constexpr int kWarpRows = 64, kWarpColumns = 64;  // per warp, two by two warps
using TileA = Tile<kSlice>;
using TileB = Tile<kColumns>;
constexpr int kTileABytes = kRows * TileA::kRowBytes;
constexpr int kStageBytes = kTileABytes + kSlice * TileB::kRowBytes;
constexpr int kSharedBytes = kStages * kStageBytes;
static_assert(kRows * TileB::kRowBytes <= kSharedBytes);  // the result reuses the ring

using Sums = Accumulators<kWarpRows, kWarpColumns>;

// Operands of one step of a warp: 16 of k.
struct Fragments {
  uint32_t a[kWarpRows / 16][4], b[kWarpColumns / 16][4];

  // a_lane, b_lane: this lane's addresses in tiles of a and b.
  __device__ __forceinline__ void load(uint32_t a_lane, uint32_t b_lane, int step) {
#pragma unroll
    for (int r = 0; r < kWarpRows / 16; ++r) load_matrices(a[r], TileA::block(a_lane, r, step));
#pragma unroll
    for (int c = 0; c < kWarpColumns / 16; ++c)
      load_matrices_transposed(b[c], TileB::block(b_lane, step, c));
  }

  template <class T>
  __device__ __forceinline__ void multiply(Sums& sums) const {
#pragma unroll
    for (int c = 0; c < kWarpColumns / 16; ++c) {
#pragma unroll
      for (int r = 0; r < kWarpRows / 16; ++r) {
        multiply_add<T>(sums.v[r][2 * c], a[r], b[c][0], b[c][1]);
        multiply_add<T>(sums.v[r][2 * c + 1], a[r], b[c][2], b[c][3]);
      }
    }
  }
};

template <class T>
__device__ __forceinline__ uint32_t silu_of_pair(uint32_t pair) {
  const float2 z = numbers<T>(pair);
  return pack<T>(silu(z.x), silu(z.y));
}

// A warp's sums start from the bias, of columns from `column` on.
template <class T>
__device__ __forceinline__ void begin_with_bias(Sums& sums, const T* bias, int column, int columns,
                                                int lane) {
  sums.clear();
  if (!bias) return;
#pragma unroll
  for (int c = 0; c < kWarpColumns / 8; ++c) {
    const int at = column + 8 * c + 2 * (lane & 3);
    if (at >= columns) continue;
    const float2 pair = numbers<T>(*reinterpret_cast<const uint32_t*>(bias + at));
#pragma unroll
    for (int r = 0; r < kWarpRows / 16; ++r) {
      sums.v[r][c][0] = sums.v[r][c][2] = pair.x;
      sums.v[r][c][1] = sums.v[r][c][3] = pair.y;
    }
  }
}

// Writes a warp's part of z's tile, and SiLU of it, with evict-first priority: other blocks will
// reread only a and b.
template <class T>
__device__ __forceinline__ void store_results(const GemmSiluParams& p, uint32_t tile,
                                              int64_t first_row, int first_column, int row,
                                              int column, int lane) {
  constexpr int kChunks = kWarpColumns / 8;
  const int chunk = column / 8 + lane % kChunks;
  const int at_column = first_column + chunk * 8;
  const auto place = [&](void* matrix, int64_t stride, int at) {
    return reinterpret_cast<uint4*>(static_cast<T*>(matrix) + (first_row + at) * stride +
                                    at_column);
  };
#pragma unroll
  for (int i = 0; i < kWarpRows * kChunks / 32; ++i) {
    const int at = row + (i * 32 + lane) / kChunks;
    const bool inside = first_row + at < p.m && at_column < p.n;
    const uint4 z = load_shared_16(tile + TileB::offset(at, chunk));
    if (inside && p.z) __stcs(place(p.z, p.z_stride, at), z);
    const uint4 y{silu_of_pair<T>(z.x), silu_of_pair<T>(z.y), silu_of_pair<T>(z.z),
                  silu_of_pair<T>(z.w)};
    if (inside) __stcs(place(p.y, p.y_stride, at), y);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads, kBlocks)
    gemm_silu_kernel(const __grid_constant__ GemmSiluParams p) {
  extern __shared__ __align__(1024) char memory[];
  const uint32_t ring = shared_address(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row = warp / 2 * kWarpRows, column = warp % 2 * kWarpColumns;

  // Concurrent blocks share a few rows of a and all of b.
  const auto tiles_across = static_cast<unsigned>((p.n + kColumns - 1) / kColumns);
  const int64_t first_row = int64_t{blockIdx.x / tiles_across} * kRows;
  const int first_column = static_cast<int>(blockIdx.x % tiles_across) * kColumns;
  const int rows = static_cast<int>(min(p.m - first_row, int64_t{kRows}));
  const int columns = static_cast<int>(p.n) - first_column, k = static_cast<int>(p.k);
  const int slices = (k + kSlice - 1) / kSlice;

  // A slice of a is a "head" of kSlice columns.
  const HeadsView a{static_cast<char*>(const_cast<void*>(p.a)), p.a_stride * 2, kSlice * 2, 16};
  const HeadsView b{static_cast<char*>(const_cast<void*>(p.b)) + int64_t{first_column} * 2,
                    p.b_stride * 2, 0, 16};
  const TileLoader<kSlice, kColumns, kThreads> b_loader(b, 0, 0);
  // Past the last slice, zeros are written and nothing is read, which avoids a branch in the loop.
  const auto load = [&](int slice) {
    const uint32_t stage = ring + slice % kStages * kStageBytes;
    const int left = k - slice * kSlice;
    TileLoader<kRows, kSlice, kThreads>(a, first_row, slice).load(stage, a, 0, rows, left);
    b_loader.load(stage + kTileABytes, b, slice * kSlice, left, columns);
    commit_copies();
  };
  for (int slice = 0; slice < kStages - 1; ++slice) load(slice);

  Sums sums;
  begin_with_bias(sums, static_cast<const T*>(p.bias), first_column + column, static_cast<int>(p.n),
                  lane);

  const uint32_t a_lane = TileA::rows_first(ring + row * TileA::kRowBytes, lane);
  const uint32_t b_lane = TileB::rows_first(ring + kTileABytes + column * 2, lane);
  Fragments first, second;  // of one slice
  static_assert(kSlice == 32);
  wait_copies<kStages - 2>();
  __syncthreads();
  first.load(a_lane, b_lane, 0);
#pragma unroll 1
  for (int slice = 0; slice < slices; ++slice) {
    const uint32_t stage = slice % kStages * kStageBytes;
    second.load(a_lane + stage, b_lane + stage, 1);
    load(slice + kStages - 1);
    first.multiply<T>(sums);
    // The next slice has arrived, and this one is no longer read.
    wait_copies<kStages - 2>();
    __syncthreads();
    const uint32_t next = (slice + 1) % kStages * kStageBytes;
    first.load(a_lane + next, b_lane + next, 0);
    second.multiply<T>(sums);
  }

  wait_copies<0>();
  __syncthreads();  // the ring is free
  store_accumulators<T, kColumns>(ring, row, column, sums, 1, lane);
  __syncwarp();
  store_results<T>(p, ring, first_row, first_column, row, column, lane);
}

template <class T>
cudaError_t launch(const GemmSiluParams& p, cudaStream_t stream) {
  const auto kernel = gemm_silu_kernel<T>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;
  const int64_t tiles = (p.m + kRows - 1) / kRows * ((p.n + kColumns - 1) / kColumns);
  kernel<<<static_cast<unsigned>(tiles), kThreads, kSharedBytes, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace

const gemm::Variant& gemm::gemm_silu_sm80() {
  static constexpr Variant kVariant{
      .config = {.kernel = "gemm_silu_kernel",
                 .architecture = 80,
                 .tile_m = kRows,
                 .tile_n = kColumns,
                 .tile_k = kSlice,
                 .stages = kStages,
                 .warps = kThreads / 32,
                 .blocks = kBlocks,
                 .shared_bytes = kSharedBytes},
      .launch = [](const GemmSiluParams& params, DType dtype, cudaStream_t stream) {
        return dtype == DType::bf16 ? launch<__nv_bfloat16>(params, stream)
                                    : launch<__half>(params, stream);
      }};
  return kVariant;
}

}  // namespace seqfuse::ops
