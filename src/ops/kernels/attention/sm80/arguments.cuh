// What the kernels of SM 8.0 are given.
#pragma once

#include "ops/kernels/attention/hstu_attention.h"
#include "ops/kernels/attention/sm80/launch.h"
#include "ops/kernels/attention/sm80/schedule.cuh"
#include "ops/kernels/attention/sm80/tile.cuh"

namespace seqfuse::ops::sm80 {

// Differences of time within a quarter of an octave: a bucket is wider, so there are two at most.
struct TimeCell {
  uint32_t edge_high;  // of the second bucket's smallest difference, the high word of its double
  int first;           // bucket
};
constexpr int kTimeCells = 4 * 64;

// What lookups by time need, made anew for each launch.
struct TimeTables {
  TimeCell cells[kTimeCells];
  uint32_t edge_low[kTimeCells];
  float weights[kBuckets + 1];
};

struct BiasArguments {
  const float* position;     // at distance 0; null: none
  int reach;                 // N - 1
  const TimeTables* tables;  // null: none
  // Of each key, since the first of its sequence: exact to 2^53.
  const double* times;        // when it happened
  const double* times_after;  // when the next one did, or the request came
};

struct Arguments {
  HeadsView q, k, v, out;
  HeadsView dout;
  GradientView dq, dk, dv;
  MaskOptions mask;
  BiasArguments bias;
  int heads, head_dim;
  float alpha, inverse_scale;
  WorkList* list;
  // Backward.
  const struct TileMask* tile_masks;  // of tiles of kBackwardQueries; of sequence b from tile_base
  const void* q_offsets;
  bool int32_offsets;
  int batch, max_seqlen;
  // With gradients of scores times kScoreGradientFactor:
  float* bias_sums;  // [tiles of keys][bias_row]: see bias_gradient.cuh
  int bias_row;
  float* dq_sums;  // [tile, head][fragments]; null: a kernel of its own computes dq
};

// Whether q, k and v can be read 16 bytes at a time.
inline bool reads_whole_chunks(const Arguments& args) {
  return args.q.grain == 16 && args.k.grain == 16 && args.v.grain == 16;
}

// What sums of dq and dk are multiplied with at the end.
__device__ __forceinline__ float query_key_scale(const Arguments& args) {
  return args.alpha * args.inverse_scale / kScoreGradientFactor;
}

// Sequence b's first entry in tables of tiles that leave room for one part tile a sequence.
__host__ __device__ __forceinline__ int64_t tile_base(int64_t q_begin, int64_t b, int tile_rows) {
  return q_begin / tile_rows + b;
}

}  // namespace seqfuse::ops::sm80
