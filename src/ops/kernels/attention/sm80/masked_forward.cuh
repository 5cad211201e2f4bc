// Forward of softmax attention under a mask: a thread block takes a pair of query blocks of a head,
// 128 queries, and walks the blocks of keys that either of them lists, so that keys which both see
// are loaded once.
//
// One warp loads, ahead of the others by a ring of stages, each with a block of K and V and what the
// two query blocks see of it. The other warps have their queries each and run on their own: a stage
// that a warp's queries do not list, it only hands back. Arrivals are counted in shared memory.
#pragma once

#include "ops/kernels/attention/sm80/masked_parts.cuh"

namespace seqfuse::ops::attention::sm80 {

// kDim_: head_dim rounded up to 32, 64, 96 or 128; products have this width, tiles one of 32, 64 or
// 128.
template <int kDim_>
struct MaskedForwardShape {
  static constexpr int kDim = kDim_, kD = kDim <= 32 ? 32 : kDim <= 64 ? 64 : 128;
  static constexpr int kGroups = 2;  // query blocks
  static constexpr int kM = kGroups * kMaskBlock, kN = kMaskBlock;
  // Of a warp. With 32, each fragment of K and V serves two products, but sums of more than 64
  // columns would not fit in registers.
  static constexpr int kRows = kDim <= 64 ? 32 : 16;
  static constexpr int kWarps = kM / kRows;  // that compute
  static constexpr int kThreads = 32 * (1 + kWarps);
  // Keys of a block that a warp takes at a time; it skips those that none of its queries sees.
  static constexpr int kKeys = kRows == 32 ? 32 : 64;
  static constexpr bool kKeepQ = kDim <= 96;  // keep Q's fragments in registers
  static constexpr int kStages = kD == 128 ? 2 : 3;
  static constexpr int kBlocks = kD == 128 ? 1 : 2;  // per SM 8.0
  static constexpr int kTile = kMaskBlock * kD * 2;
  static constexpr int kTiles = (kGroups + 2 * kStages) * kTile;

  // What the query blocks see of a stage's keys.
  struct Step {
    uint64_t bits[kGroups][kMaskBlock];  // if partial
    int32_t state[kGroups];              // kFull, kPartial or kAbsent; the first one also kEnd
    int32_t unused[2];
  };
  struct Shared {
    Step steps[kStages];
    uint64_t queries_there, full[kStages], empty[kStages];  // barriers
  };
  static constexpr int kSharedBytes = kTiles + sizeof(Shared);
};

constexpr int32_t kPartial = 0, kFull = -1, kAbsent = -2, kEnd = -3;

// The pair of query blocks and the head of a thread block. Pairs with the most blocks come first,
// each for all the sequences that share it and all heads.
struct MaskedPair {
  int block, list, count;  // of the first one; count: 1 if there is no second
  int sequence, head;

  __device__ __forceinline__ MaskedPair(const BlockMaskView& mask, int batch, int heads) {
    const bool shared = mask.batch == 1;
    const int each = shared ? batch * heads : heads;
    const int pairs = static_cast<int>(mask.query_pairs());
    const int i = blockIdx.x % each, pair = __ldg(mask.pair_order + blockIdx.x / each);
    head = i % heads;
    sequence = shared ? i / heads : pair / pairs;
    block = 2 * (shared ? pair : pair % pairs);
    const int blocks = static_cast<int>(mask.query_blocks);
    list = (shared ? 0 : sequence * blocks) + block;
    count = min(2, blocks - block);
  }
};

// Waits until the phase of that parity is complete, without polling where the hardware can.
__device__ __forceinline__ void wait_phase(uint32_t barrier, int parity) {
#if __CUDA_ARCH__ >= 900
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
#else
  wait_arrivals(barrier, parity);
#endif
}

__device__ __forceinline__ void arrive_once(uint32_t barrier) {
  asm volatile(
      "{\n.reg .b64 state;\n"
      "mbarrier.arrive.shared.b64 state, [%0];\n}\n" ::"r"(barrier)
      : "memory");
}

// A place in the ring of stages.
template <int kStages>
struct RingPlace {
  int stage = 0, parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// The loading warp, threads 0 to 31.
template <class Shape>
__device__ __forceinline__ void load_pair(const MaskedArguments& args, const MaskedPair& pair,
                                          uint32_t tiles, typename Shape::Shared& shared) {
  constexpr int kPastEnd = 0x7fffffff;
  constexpr int kGroups = Shape::kGroups, kTile = Shape::kTile;
  const BlockMaskView& mask = args.mask;
  const int lane = threadIdx.x, key_head = pair.head / (args.heads / args.key_heads);
  int entry[kGroups], end[kGroups], column[kGroups], bitmap[kGroups];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    entry[g] = __ldg(mask.row_begin + pair.list + min(g, pair.count));
    end[g] = __ldg(mask.row_begin + pair.list + min(g + 1, pair.count));
  }
  using Loader = SeenLoader<Shape::kD, 32>;
  const Loader queries(args.q.of(pair.sequence), pair.head, args.head_dim, mask.step);
  for (int g = 0; g < pair.count; ++g) {
    const masks::BlockTokens own = mask.queries_of(pair.block + g);
    queries.load(tiles + g * kTile, own.first, bits_of(own));
  }
  arrive_with_copies(shared_address(&shared.queries_there));

  const auto look = [&](int g) {
    const bool more = entry[g] < end[g];
    column[g] = more ? __ldg(mask.column + entry[g]) : kPastEnd;
    bitmap[g] = more ? __ldg(mask.bitmap + entry[g]) : kAbsent;
  };
#pragma unroll
  for (int g = 0; g < kGroups; ++g) look(g);
  const Loader keys(args.k.of(pair.sequence), key_head, args.head_dim, mask.step);
  const Loader values(args.v.of(pair.sequence), key_head, args.head_dim, mask.step);
  const uint32_t ring = tiles + kGroups * kTile;
  RingPlace<Shape::kStages> at;
  while (true) {
    int now = kPastEnd;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) now = min(now, column[g]);
    uint64_t seen = 0;
    int state[kGroups];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const bool listed = column[g] == now && now != kPastEnd;
      state[g] = listed ? bitmap[g] : kAbsent;
      if (state[g] == kFull) seen = ~uint64_t{0};
      if (state[g] >= 0)
        seen |= __ldg(reinterpret_cast<const unsigned long long*>(mask.seen) +
                      2 * static_cast<int64_t>(state[g]));
      if (listed) {
        ++entry[g];
        look(g);
      }
    }
    // Before the first phase, the one of parity 1 counts as complete.
    wait_phase(shared_address(&shared.empty[at.stage]), at.parity ^ 1);
    typename Shape::Step& step = shared.steps[at.stage];
    const uint32_t full = shared_address(&shared.full[at.stage]);
    if (now == kPastEnd) {
      if (lane == 0) step.state[0] = kEnd;
      arrive_with_copies(full);
      break;
    }
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      if (lane == 0) step.state[g] = state[g] >= 0 ? kPartial : state[g];
      if (state[g] >= 0)  // 16 bytes a lane
        copy_async(shared_address(&step.bits[g][2 * lane]),
                   mask.bits + static_cast<int64_t>(state[g]) * kMaskBlock + 2 * lane, true);
    }
    const uint32_t to = ring + at.stage * 2 * kTile;
    const int64_t first = mask.keys_of(now).first;
    keys.load(to, first, seen);
    values.load(to + kTile, first, seen);
    arrive_with_copies(full);
    at.advance();
  }
}

// Running softmax of a lane's queries: the rows of its accumulators.
template <int kRows>
struct SoftmaxRows {
  static constexpr int kR = kRows / 16;
  float base[kR][2], total[kR][2];  // total: of this lane's keys only

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int r = 0; r < kR; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        base[r][half] = kNone;
        total[r][half] = 0;
      }
  }

  // Turns scores into weights. scale: log2(e) times that of scores; positive.
  //
  // Weights are relative to a score that is the largest so far, or up to 2^kSlack times smaller: so
  // out and the totals rarely have to be rescaled. A row's numbers do not depend on others: those
  // that need no new base are multiplied by 1.
  template <int kDim, int kKeys>
  __device__ __forceinline__ void add(Accumulators<kRows, kKeys>& s, Accumulators<kRows, kDim>& out,
                                      float scale) {
    constexpr float kSlack = 8;
    float now[kR][2];
    bool grows = false;
#pragma unroll
    for (int r = 0; r < kR; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float x = fmaxf(s.v[r][0][2 * half], s.v[r][0][2 * half + 1]);
#pragma unroll
        for (int c = 1; c < kKeys / 8; ++c)
          x = fmaxf(x, fmaxf(s.v[r][c][2 * half], s.v[r][c][2 * half + 1]));
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
        now[r][half] = x;
        grows = grows || x * scale > fmaf(base[r][half], scale, kSlack);
      }
    }
    if (__any_sync(0xffffffffu, grows)) {
#pragma unroll
      for (int r = 0; r < kR; ++r) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float before = base[r][half];
          const bool changes = now[r][half] * scale > fmaf(before, scale, kSlack);
          const float after = changes ? now[r][half] : before;
          const float factor = changes ? exp2_approximate((before - after) * scale) : 1.0f;
          base[r][half] = after;
          total[r][half] *= factor;
#pragma unroll
          for (int c = 0; c < kDim / 8; ++c) {
            out.v[r][c][2 * half] *= factor;
            out.v[r][c][2 * half + 1] *= factor;
          }
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kR; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // Without any key yet, all weights must be 0, not NaN.
        const float offset = base[r][half] == kNone ? 0.0f : base[r][half] * scale;
        float sum = 0;
#pragma unroll
        for (int c = 0; c < kKeys / 8; ++c) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& x = s.v[r][c][2 * half + e];
            x = exp2_approximate(fmaf(x, scale, -offset));
            sum += x;
          }
        }
        total[r][half] += sum;
      }
    }
  }

  // Divides out by the totals, and writes the log-sum-exp of the rows that exist. scale: that of
  // scores. lse: of the warp's first row, rows of which exist from there, step numbers apart.
  template <int kDim>
  __device__ __forceinline__ void finish(Accumulators<kRows, kDim>& out, float scale, float* lse,
                                         int rows, int step, int lane) {
#pragma unroll
    for (int r = 0; r < kR; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float sum = total[r][half];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        const float inverse = sum == 0 ? 0.0f : __fdividef(1.0f, sum);
#pragma unroll
        for (int c = 0; c < kDim / 8; ++c) {
          out.v[r][c][2 * half] *= inverse;
          out.v[r][c][2 * half + 1] *= inverse;
        }
        const int row = 16 * r + 8 * half + (lane >> 2);
        if ((lane & 3) == 0 && row < rows)
          lse[row * step] = sum == 0 ? kNone : fmaf(base[r][half], scale, __logf(sum));
      }
    }
  }
};

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    masked_forward_kernel(const __grid_constant__ MaskedArguments args) {
  constexpr int kD = Shape::kD, kDim = Shape::kDim, kRows = Shape::kRows, kTile = Shape::kTile;
  constexpr int kWarpsOfBlock = kMaskBlock / kRows;
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<typename Shape::Shared*>(memory + Shape::kTiles);
  const uint32_t tiles = shared_address(memory);
  const BlockMaskView& mask = args.mask;
  const MaskedPair pair(mask, args.batch, args.heads);
  if (threadIdx.x == 0) {
    init_arrivals(shared_address(&shared.queries_there), 64);  // twice by each lane
    for (int i = 0; i < Shape::kStages; ++i) {
      init_arrivals(shared_address(&shared.full[i]), 64);
      init_arrivals(shared_address(&shared.empty[i]), Shape::kWarps);
    }
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    load_pair<Shape>(args, pair, tiles, shared);
    return;
  }
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 1;
  const int group = warp / kWarpsOfBlock, row0 = warp % kWarpsOfBlock * kRows;
  const uint32_t q_tile = tiles + group * kTile, ring = tiles + Shape::kGroups * kTile;
  const uint32_t k_lane = Tile<kD>::columns_first(ring, lane);
  const uint32_t v_lane = Tile<kD>::rows_first(ring + kTile, lane);

  uint32_t q[Shape::kKeepQ ? kDim / 16 : 1][kRows / 16][4];
  wait_phase(shared_address(&shared.queries_there), 0);
  const uint32_t q_lane = Tile<kD>::rows_first(q_tile + row0 * Tile<kD>::kRowBytes, lane);
  if constexpr (Shape::kKeepQ) {
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
#pragma unroll
      for (int r = 0; r < kRows / 16; ++r) load_matrices(q[d][r], Tile<kD>::block(q_lane, r, d));
    }
  }
  Accumulators<kRows, kDim> out;
  out.clear();
  SoftmaxRows<kRows> softmax;
  softmax.clear();
  for (RingPlace<Shape::kStages> at;; at.advance()) {
    wait_phase(shared_address(&shared.full[at.stage]), at.parity);
    const typename Shape::Step& step = shared.steps[at.stage];
    if (step.state[0] == kEnd) break;
    const int state = step.state[group];
    if (state != kAbsent) {
      const uint32_t stage = at.stage * 2 * kTile;
#pragma unroll 1
      for (int key0 = 0; key0 < kMaskBlock; key0 += Shape::kKeys) {
        QueryBits<kRows, Shape::kKeys> bits;
        if (state == kPartial) {
          bits.fetch(step.bits[group], row0, key0, lane);
          if (!bits.any()) continue;
        }
        const uint32_t from = stage + key0 * Tile<kD>::kRowBytes;
        Accumulators<kRows, Shape::kKeys> s;
        if constexpr (Shape::kKeepQ) {
          s.clear();
#pragma unroll
          for (int d = 0; d < kDim / 16; ++d) {
            multiply_step<T>(s, q[d], [&](int c, uint32_t(&b)[4]) {
              load_matrices(b, Tile<kD>::block(k_lane + from, c, d));
            });
          }
        } else {
          multiply_tiles<T, kD, kDim>(s, q_lane, k_lane + from);
        }
        if (state == kPartial) bits.hide(s, kNone, lane);
        softmax.add(s, out, args.scale * kLog2e);
        add_weighted_rows<T, kD>(out, s, v_lane + from);
      }
    }
    __syncwarp();  // all lanes have read the stage
    if (lane == 0) arrive_once(shared_address(&shared.empty[at.stage]));
  }
  if (group >= pair.count) return;
  const masks::BlockTokens own = mask.queries_of(pair.block + group);
  const int64_t head_row = static_cast<int64_t>(pair.sequence) * args.heads + pair.head;
  softmax.finish(out, args.scale, args.lse + head_row * mask.queries + own.first + row0 * mask.step,
                 static_cast<int>(own.count) - row0, mask.step, lane);
  // Through Q's memory, of which a warp reads only its own rows.
  write_rows<T, kD>(args.out.of(pair.sequence), pair.head, own, mask.step, args.head_dim, q_tile,
                    row0, out, 1.0f, lane);
}

}  // namespace seqfuse::ops::attention::sm80
