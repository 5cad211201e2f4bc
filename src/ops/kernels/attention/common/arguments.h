// Arguments of the attention kernels, the same for all architectures.
#pragma once

#include "ops/kernels/attention/common/time_buckets.h"
#include "ops/kernels/attention/common/work_list.h"
#include "ops/kernels/common/heads_view.h"

namespace seqfuse::ops::attention {

struct TileMask;  // tile_mask.cuh

// Queries per entry of the mask table and per part of dq's sums.
constexpr int kBackwardQueries = 64;
// Keys per tile in the bias-gradient kernel.
constexpr int kBiasGradientKeys = 64;
// The backward kernels scale score gradients by this and divide their sums by it: dp 2 silu'(2 h) =
// dp (1 + tanh h) (1 + h (1 - tanh h)) saves one operation over silu' when dp is at hand. float16
// overflows slightly earlier; loss scaling adapts.
constexpr float kScoreGradientFactor = 2;

// Rows that token sums are spread over, so that the blocks' atomics do not all hit one address.
constexpr int kTotals = 32;

// Destination of a gradient.
struct GradientView {
  HeadsView to;
  HeadsView pre;  // if it has data, the gradient is multiplied by silu' of it
  // With pre: sums over tokens go to one of kTotals rows, [heads, head_dim]; null: no sums.
  float* totals;
  int totals_row;  // elements
};

struct BiasArguments {
  const float* position;     // at distance 0; null: none
  int reach;                 // N - 1
  const TimeTables* tables;  // null: none
  // Times of each key relative to the sequence's first: exact up to 2^53.
  const double* times;        // of the event
  const double* times_after;  // of the next event, or of the request
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
  // Backward only.
  const TileMask* tile_masks;  // per kBackwardQueries queries; sequence b starts at tile_base
  const void* q_offsets;
  bool int32_offsets;
  int batch, max_seqlen;
  // Sums of score gradients times kScoreGradientFactor:
  float* bias_sums;  // [tiles of keys][bias_row]: see bias_gradient.cuh
  int bias_row;
  float* dq_sums;  // [tile, head][fragments]; null: a separate kernel computes dq
};

}  // namespace seqfuse::ops::attention
