// What attention's kernels are given, on any architecture.
#pragma once

#include "ops/kernels/attention/common/time_buckets.h"
#include "ops/kernels/attention/common/work_list.h"
#include "ops/kernels/common/heads_view.h"

namespace seqfuse::ops::attention {

struct TileMask;  // tile_mask.cuh

// Queries of an entry in the table of masks, and of a part of dq's sums.
constexpr int kBackwardQueries = 64;
// Keys of a tile of the gradients of biases.
constexpr int kBiasGradientKeys = 64;
// What kernels of the backward pass multiply gradients of scores with, and divide their sums by:
// dp 2 silu'(2 h) = dp (1 + tanh h) (1 + h (1 - tanh h)) takes an operation less, where dp is at
// hand, than with silu' itself. In float16 they reach its limit a bit sooner; loss scaling adapts.
constexpr float kScoreGradientFactor = 2;

// Rows of sums over tokens: many, lest the atomics of all blocks meet at one address.
constexpr int kTotals = 32;

// Where a gradient goes.
struct GradientView {
  HeadsView to;
  HeadsView pre;  // it is multiplied by silu' of this, if it has data
  // With pre: sums over tokens are added to one of kTotals rows, [heads, head_dim]; null: to none.
  float* totals;
  int totals_row;  // elements
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
  const TileMask* tile_masks;  // of tiles of kBackwardQueries; of sequence b from tile_base
  const void* q_offsets;
  bool int32_offsets;
  int batch, max_seqlen;
  // With gradients of scores times kScoreGradientFactor:
  float* bias_sums;  // [tiles of keys][bias_row]: see bias_gradient.cuh
  int bias_row;
  float* dq_sums;  // [tile, head][fragments]; null: a kernel of its own computes dq
};

}  // namespace seqfuse::ops::attention
