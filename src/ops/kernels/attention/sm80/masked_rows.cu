// Forward of softmax attention under a mask for few allowed pairs: a warp has one query of a head
// and reads only the keys that it sees. Groups of 8 lanes, or 16 if head_dim exceeds 64, take keys
// in turn, each with a softmax of its own; at the end these are merged in a fixed order.
#include "ops/kernels/attention/common/exp2.cuh"
#include "ops/kernels/attention/masked_launch.cuh"
#include "ops/kernels/common/sm80/tile.cuh"

namespace seqfuse::ops::attention::sm80 {
namespace {

using ops::sm80::numbers;
using ops::sm80::pack;

constexpr int kRowThreads = 128, kRowsOfBlock = kRowThreads / 32;
constexpr unsigned kLanes32 = 0xffffffffu;

// 8 neighbouring elements of a row.
struct Eight {
  float v[8];

  template <class T>
  static __device__ __forceinline__ Eight of(const uint4& packed) {
    const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
    Eight eight;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float2 two = numbers<T>(words[e]);
      eight.v[2 * e] = two.x;
      eight.v[2 * e + 1] = two.y;
    }
    return eight;
  }
};

// The block row of a query, and its number in the block: the inverse of tokens_of_block.
__device__ __forceinline__ void place_of(const masks::BlockMaskView& mask, int64_t query,
                                         int64_t& block, int& number) {
  const int64_t of_residue = query / mask.step;
  block = query % mask.step * (mask.query_blocks / mask.step) + of_residue / kMaskBlock;
  number = static_cast<int>(of_residue % kMaskBlock);
}

template <class T, int kLanes>
__global__ void __launch_bounds__(kRowThreads)
    masked_rows_kernel(const __grid_constant__ MaskedAttentionParams p) {
  constexpr int kGroups = 32 / kLanes;
  const int64_t queries = p.mask.queries;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock + threadIdx.x / 32;
  if (row >= p.batch * p.heads * queries) return;
  const int64_t query = row % queries, head = row / queries % p.heads;
  const int64_t b = row / queries / p.heads, key_head = head / (p.heads / p.key_heads);
  const int lane = threadIdx.x % 32, group = lane / kLanes, column = lane % kLanes * 8;
  const bool inside = column < p.head_dim;
  // The lane's elements of a row.
  const auto at = [&](const BatchedHeads& heads, int64_t h, int64_t r) {
    return reinterpret_cast<uint4*>(static_cast<uint16_t*>(heads.data) + b * heads.batch_stride +
                                    h * heads.head_stride + r * heads.row_stride + column);
  };
  Eight q = Eight::of<T>(inside ? *at(p.q, head, query) : uint4{}), out{};
  const float to_log2 = static_cast<float>(p.scale) * kLog2e;
  float base = kNone, total = 0;

  int64_t block;
  int number;
  place_of(p.mask, query, block, number);
  const int64_t list = p.mask.sequence(b) * p.mask.query_blocks + block;
  for (int e = p.mask.row_begin[list]; e < p.mask.row_begin[list + 1]; ++e) {
    const int bitmap = p.mask.bitmap[e];
    const uint64_t word =
        bitmap < 0 ? ~uint64_t{0} : p.mask.bits[int64_t{bitmap} * kMaskBlock + number];
    const int64_t first = p.mask.keys_of(p.mask.column[e]).first;
    uint64_t left = word;
    for (int i = 0; i < group; ++i) left &= left - 1;
    for (int count = __popcll(word); count > 0; count -= kGroups) {
      const bool exists = left != 0;
      const int64_t key =
          first + (exists ? __ffsll(static_cast<int64_t>(left)) - 1 : 0) * int64_t{p.mask.step};
#pragma unroll
      for (int i = 0; i < kGroups; ++i) left &= left - 1;
      const bool reads = exists && inside;
      const Eight k = Eight::of<T>(reads ? *at(p.k, key_head, key) : uint4{});
      const Eight v = Eight::of<T>(reads ? *at(p.v, key_head, key) : uint4{});
      float score = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) score = fmaf(q.v[i], k.v[i], score);
#pragma unroll
      for (int step = kLanes / 2; step > 0; step /= 2)
        score += __shfl_xor_sync(kLanes32, score, step);
      score *= to_log2;
      if (!exists || score == kNone) continue;  // a weight of 0
      const float most = fmaxf(base, score);
      const float factor = exp2_approximate(base - most), weight = exp2_approximate(score - most);
      base = most;
      total = fmaf(total, factor, weight);
#pragma unroll
      for (int i = 0; i < 8; ++i) out.v[i] = fmaf(out.v[i], factor, weight * v.v[i]);
    }
  }
#pragma unroll
  for (int step = kLanes; step < 32; step *= 2) {
    const float other = __shfl_xor_sync(kLanes32, base, step);
    const float most = fmaxf(base, other);
    // Groups without keys have nothing to scale.
    const float factor = base == kNone ? 0.0f : exp2_approximate(base - most);
    base = most;
    total *= factor;
    total += __shfl_xor_sync(kLanes32, total, step);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      out.v[i] *= factor;
      out.v[i] += __shfl_xor_sync(kLanes32, out.v[i], step);
    }
  }
  const float inverse = total == 0 ? 0.0f : 1.0f / total;
  if (group == 0 && inside) {
    uint32_t words[4];
#pragma unroll
    for (int e = 0; e < 4; ++e)
      words[e] = pack<T>(out.v[2 * e] * inverse, out.v[2 * e + 1] * inverse);
    *at(p.out, head, query) = {words[0], words[1], words[2], words[3]};
  }
  if (lane == 0) static_cast<float*>(p.lse)[row] = total == 0 ? kNone : base / kLog2e + logf(total);
}

// kHeadDim: the widest of a row.
template <int kHeadDim>
constexpr MaskedVariant row() {
  constexpr int kLanes = kHeadDim / 8;
  return {.config = {.kernel = "masked_rows_kernel",
                     .architecture = 80,
                     .head_dim = kHeadDim,
                     .tile_queries = kRowsOfBlock,
                     .tile_keys = 32 / kLanes,  // of a query at a time
                     .warps = kRowThreads / 32},
          .launch = [](const Config& config, const MaskedAttentionParams& params, DType dtype,
                       cudaStream_t stream) {
            const int64_t rows = params.batch * params.heads * params.mask.queries;
            return launch_blocks(config, masked_rows_kernel<__half, kLanes>,
                                 masked_rows_kernel<__nv_bfloat16, kLanes>, dtype,
                                 (rows + kRowsOfBlock - 1) / kRowsOfBlock, stream, params);
          }};
}

}  // namespace

std::span<const MaskedVariant> masked_rows_variants() {
  static const MaskedVariant rows[] = {row<64>(), row<128>()};
  return rows;
}

}  // namespace seqfuse::ops::attention::sm80
