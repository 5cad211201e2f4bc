// Shared by the kernels that loop over key tiles for a tile of queries.
#pragma once

#include "ops/kernels/attention/common/tile_mask.cuh"
#include "ops/kernels/attention/sm80/worker.cuh"

namespace seqfuse::ops::attention::sm80 {

// The mask of this thread's query in a tile that starts at m0.
__device__ __forceinline__ RowMask row_mask_of_thread(const MaskOptions& options,
                                                      const WorkItem& item, int m0) {
  const int row = min(m0 + static_cast<int>(threadIdx.x), item.queries - 1);
  return row_mask(options, item, item.keys - item.queries + row);
}

// The masks of a tile's queries, from m0 on: each query's to shared.rows, if these are whole masks;
// each warp's combined mask to shared.warps; returns that of the tile. Call from the whole block;
// contains a barrier.
template <int kM, class Shared>
__device__ __forceinline__ TileMask make_row_masks(Shared& shared, const MaskOptions& options,
                                                   WorkItem item, int m0) {
  if (threadIdx.x < kM) {
    const RowMask m = row_mask_of_thread(options, item, m0);
    if constexpr (kIsSame<decltype(Shared::rows), RowMask[kM]>) shared.rows[threadIdx.x] = m;
    const TileMask all = combine_lanes(m);
    if (threadIdx.x % 32 == 0) shared.warps[threadIdx.x / 32] = all;
  }
  __syncthreads();
  TileMask mask = shared.warps[0];
#pragma unroll
  for (int w = 1; w < kM / 32; ++w) mask = combine(mask, shared.warps[w]);
  return mask;
}

// Zeroes scores that the mask hides. row and j: first query and first key, relative to the sequence
// or to the tile, like the masks.
template <int kRows, int kColumns, class Mask>
__device__ __forceinline__ void hide(Accumulators<kRows, kColumns>& s, const Mask* rows, int row,
                                     int j, int lane) {
#pragma unroll
  for (int r = 0; r < kRows / 16; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Mask m = rows[row + 16 * r + 8 * half + (lane >> 2)];
#pragma unroll
      for (int c = 0; c < kColumns / 8; ++c) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (!m.sees(j + 8 * c + 2 * (lane & 3) + e)) s.v[r][c][2 * half + e] = 0;
        }
      }
    }
  }
}

// silu(2 h)
__device__ __forceinline__ float silu_of_half(float h) {
  return fmaf(h, tanh_approximate(h), h);
}

// out += P V for 32 queries and 16 keys. P: fragments of SiLU values; v_at: lane address of V
// (rows_first). Columns from 16 column.
template <class T, int kD, int kColumns>
__device__ __forceinline__ void add_values(Accumulators<32, kColumns>& out,
                                           const uint32_t (&p)[2][4], uint32_t v_at, int k,
                                           int column) {
  multiply_step<T>(out, p, [&](int c, uint32_t(&b)[4]) {
    load_matrices_transposed(b, Tile<kD>::block(v_at, k, column + c));
  });
}

// Fragments of silu(2 s scale) from accumulators of 16 keys.
template <class T, int kColumns>
__device__ __forceinline__ void silu_fragments(uint32_t (&p)[2][4],
                                               const Accumulators<32, kColumns>& s, float scale,
                                               int k) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float* x = &s.v[r][2 * k + e / 2][e % 2 * 2];
      p[r][e] = pack<T>(silu_of_half(x[0] * scale), silu_of_half(x[1] * scale));
    }
  }
}

// Writes a warp's 32 rows of a piece's output, by way of a tile that no other warp uses, so that
// rows are written whole.
template <class T, int kD, int kM, int kColumns>
__device__ __forceinline__ void write_output(const Arguments& args, const WorkItem& item, int head,
                                             uint32_t tile, int row0, int column0,
                                             const Accumulators<32, kColumns>& out, int lane) {
  const int m0 = item.tile * kM;
  store_accumulators<T, kD>(tile, row0, column0, out, args.inverse_scale, lane);
  __syncwarp();
  store_rows<T, kD, 32, kColumns>(RowsView(args.out, item.q_begin + m0, head, args.head_dim),
                                  min(kM, item.queries - m0), tile, row0, column0, lane);
}

// Like the above with less memory, in parts of 32 columns, so that writing can be interleaved with
// other work: stage() a part, then write() it. A part goes through 32 columns of the warp's rows in
// a tile of 64 columns that no other warp uses. Requires a grain of 16.
class OutputInParts {
 public:
  static constexpr int kColumns = 32;  // per part

  // Nothing to write.
  OutputInParts() = default;
  // For a piece's kM-row tile: the rows from row and the columns from column.
  template <int kM>
  static __device__ OutputInParts of(const Arguments& args, const WorkItem& item, int head, int row,
                                     int column, int lane) {
    const int at = item.tile * kM + row + row_of(lane), first = column + chunk_of(lane) * 8;
    OutputInParts result;
    result.to_ = RowsView(args.out, item.q_begin + at, head, args.head_dim).data + first * 2;
    result.rows_ = item.queries - at;
    result.columns_ = args.head_dim - first;
    return result;
  }

  // tile, row, column: position in shared memory.
  template <class T, int kAll>
  __device__ void stage(const Arguments& args, int part, uint32_t tile, int row, int column,
                        const Accumulators<32, kAll>& out, int lane) const {
    store_pairs<64, 32, kColumns, true>(tile, row, column, lane, [&](int r, int c, int half) {
      const float* x = &out.v[r][part * kColumns / 8 + c][2 * half];
      return pack<T>(x[0] * args.inverse_scale, x[1] * args.inverse_scale);
    });
    __syncwarp();
  }
  __device__ void write(const Arguments& args, int part, uint32_t tile, int row, int column,
                        int lane) const {
    char* to = to_ + part * kColumns * 2;
#pragma unroll
    for (int i = 0; i < 32; i += 8) {
      const uint4 v = load_shared_16(
          tile + Tile<64>::offset(row + row_of(lane) + i, column / 8 + chunk_of(lane)));
      if (i < rows_ && part * kColumns < columns_) *reinterpret_cast<uint4*>(to) = v;
      to += 8 * args.out.row_bytes;
    }
    __syncwarp();
  }

 private:
  // Eight lanes read two rows whose chunks are in different banks.
  static __device__ int row_of(int lane) { return (lane >> 3) + (lane & 4); }
  static __device__ int chunk_of(int lane) { return lane & 3; }

  // This lane's output address, and the rows and columns that exist from there.
  char* to_ = nullptr;
  int rows_ = 0, columns_ = 0;
};

}  // namespace seqfuse::ops::attention::sm80
