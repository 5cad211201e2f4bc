// Two passes, so that no two threads add to one element: blocks of queries compute dq, blocks of
// keys dk and dv. Both compute the weights again from lse.
#include <limits>

#include "base/parallel.h"
#include "ops/cpu/attention/masked_attention_blocks.h"
#include "ops/cpu/dispatch.h"

namespace seqfuse::ops {
namespace cpu {
namespace {

template <class T>
bool has_weights(T lse) {
  return lse != -std::numeric_limits<T>::infinity();
}

// What the scores of a query are reduced by: its log-sum-exp. If all are -infinity, so that weights
// are 0, it is 0: -infinity - lse would be NaN.
template <class T>
T shift_of(T lse) {
  return has_weights(lse) ? lse : T(0);
}

// delta = <dout, out> - dlse, for all rows; 0 for those without weights.
template <class T>
void make_delta(const MaskedAttentionParams& p) {
  const int64_t queries = p.mask.queries;
  parallel_for(p.batch * p.heads * queries, 64, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t b = row / queries / p.heads, h = row / queries % p.heads, i = row % queries;
      const auto out = HeadRows<const T>::of(p.out, b, h);
      const auto dout = HeadRows<const T>::of(p.dout, b, h);
      const T *x = out.data + i * out.stride, *y = dout.data + i * dout.stride;
      T sum = p.dlse == nullptr ? T(0) : -static_cast<const T*>(p.dlse)[row];
#pragma omp simd reduction(+ : sum)
      for (int64_t c = 0; c < p.head_dim; ++c) sum += x[c] * y[c];
      const bool weighs = has_weights(static_cast<const T*>(p.lse)[row]);
      static_cast<T*>(p.delta)[row] = weighs ? sum : T(0);
    }
  });
}

// Turns scores and products <dout, v> of a strip into weights and ds: lane `l` of row `r` has
// shift(r, c) and delta(r, c), as vectors c of the strip.
template <class T, class Shift, class Delta>
void differentiate(T* scores, T* products, int64_t rows, Shift&& shift, Delta&& delta) {
  constexpr int kW = kLanes<T>, kWidth = kStripWidth<T>;
  for (int64_t r = 0; r < rows; ++r) {
    for (int c = 0; c < 2; ++c) {
      T *s = scores + r * kWidth + c * kW, *dp = products + r * kWidth + c * kW;
      const Vector<T> weight = weight_of<T>(load(s) - shift(r, c));
      store(s, weight);
      store(dp, weight * (load(dp) - delta(r, c)));
    }
  }
}

template <class T>
void queries_backward(const MaskedAttentionParams& p, int64_t b, int64_t head,
                      int64_t query_block) {
  constexpr int kW = kLanes<T>, kWidth = kStripWidth<T>;
  const masks::BlockMaskView& mask = p.mask;
  const int64_t d = p.head_dim, d_ld = round_up_to_lanes<T>(d), strip_size = d * kWidth;
  const masks::BlockTokens own = mask.queries_of(query_block);
  if (own.count == 0) return;
  const auto k = HeadRows<const T>::of(p.k, b, p.key_head(head));
  const auto v = HeadRows<const T>::of(p.v, b, p.key_head(head));

  Scratch& scratch = Scratch::fresh();
  T* q_strips = scratch.take<T>(kStrips<T> * strip_size);
  T* dout_strips = scratch.take<T>(kStrips<T> * strip_size);
  T* sums = scratch.take<T>(kStrips<T> * strip_size);
  T* k_columns = scratch.take<T>(d * kColumnsLd<T>);
  T* v_columns = scratch.take<T>(d * kColumnsLd<T>);
  T* k_rows = scratch.take<T>(kBlock * d_ld);
  T* scores = scratch.take<T>(kBlock * kWidth);
  T* products = scratch.take<T>(kBlock * kWidth);
  T* shift = scratch.take<T>(kBlock);
  T* delta = scratch.take<T>(kBlock);
  const int64_t row0 = (b * p.heads + head) * mask.queries + own.first;
  std::fill_n(shift, kBlock, T(0));
  std::fill_n(delta, kBlock, T(0));
  for (int64_t i = 0; i < own.count; ++i) {
    shift[i] = shift_of(static_cast<const T*>(p.lse)[row0 + i * mask.step]);
    delta[i] = static_cast<const T*>(p.delta)[row0 + i * mask.step];
  }
  std::fill_n(sums, kStrips<T> * strip_size, T(0));
  pack_strips(q_strips, HeadRows<const T>::of(p.q, b, head).block(own, mask.step), own.count, d,
              static_cast<T>(p.scale));
  pack_strips(dout_strips, HeadRows<const T>::of(p.dout, b, head).block(own, mask.step), own.count,
              d, T(1));

  const int64_t list = mask.sequence(b) * mask.query_blocks + query_block;
  for (int32_t e = mask.row_begin[list]; e < mask.row_begin[list + 1]; ++e) {
    const ListedBlock block(mask, mask.column[e], mask.bitmap[e]);
    const masks::BlockTokens listed = mask.keys_of(block.index);
    const int64_t keys = listed.count;
    pack_columns(k_columns, k.block(listed, mask.step), keys, d, T(1));
    pack_columns(v_columns, v.block(listed, mask.step), keys, d, T(1));
    pack_seen_rows(k_rows, d_ld, k.block(listed, mask.step), keys, d, T(1), block.seen_keys);
    clear_infinite(k_rows, d_ld, keys, d);
    for (int s = 0; s < kStrips<T>; ++s) {
      const auto lane_values = [&](const T* values) {
        return [=](int64_t, int c) { return load(values + s * kWidth + c * kW); };
      };
      const auto make = [&] {
        multiply<2, 1, false>(scores, kWidth, k_columns, kColumnsLd<T>, q_strips + s * strip_size,
                              kWidth, keys, d);
        multiply<2, 1, false>(products, kWidth, v_columns, kColumnsLd<T>,
                              dout_strips + s * strip_size, kWidth, keys, d);
        differentiate(scores, products, keys, lane_values(shift), lane_values(delta));
      };
      if (block.bits == nullptr) {
        make();
      } else {
        const LanesOfQueries<T> lanes(block.bits, s);
        if (!lanes.any()) continue;
        make();
        lanes.hide(products, keys, T(0));
      }
      multiply<2, 1, true>(sums + s * strip_size, kWidth, k_rows, d_ld, products, kWidth, d, keys);
    }
  }
  unpack_strips(HeadRows<T>::of(p.dq, b, head).block(own, mask.step), sums, own.count, d,
                static_cast<T>(p.scale));
}

template <class T>
void keys_backward(const MaskedAttentionParams& p, int64_t b, int64_t key_head, int64_t key_block) {
  constexpr int kWidth = kStripWidth<T>;
  const masks::BlockMaskView& mask = p.mask;
  const int64_t d = p.head_dim, d_ld = round_up_to_lanes<T>(d), strip_size = d * kWidth;
  const masks::BlockTokens own = mask.keys_of(key_block);
  if (own.count == 0) return;
  const int64_t group = p.heads / p.key_heads;

  Scratch& scratch = Scratch::fresh();
  T* k_strips = scratch.take<T>(kStrips<T> * strip_size);
  T* v_strips = scratch.take<T>(kStrips<T> * strip_size);
  T* dk = scratch.take<T>(kStrips<T> * strip_size);
  T* dv = scratch.take<T>(kStrips<T> * strip_size);
  T* q_columns = scratch.take<T>(d * kColumnsLd<T>);
  T* dout_columns = scratch.take<T>(d * kColumnsLd<T>);
  T* q_rows = scratch.take<T>(kBlock * d_ld);
  T* dout_rows = scratch.take<T>(kBlock * d_ld);
  T* scores = scratch.take<T>(kBlock * kWidth);
  T* products = scratch.take<T>(kBlock * kWidth);
  std::fill_n(dk, kStrips<T> * strip_size, T(0));
  std::fill_n(dv, kStrips<T> * strip_size, T(0));
  pack_strips(k_strips, HeadRows<const T>::of(p.k, b, key_head).block(own, mask.step), own.count, d,
              T(1));
  pack_strips(v_strips, HeadRows<const T>::of(p.v, b, key_head).block(own, mask.step), own.count, d,
              T(1));

  const auto scale = static_cast<T>(p.scale);
  const int64_t list = mask.sequence(b) * mask.key_blocks + key_block;
  for (int32_t e = mask.column_begin[list]; e < mask.column_begin[list + 1]; ++e) {
    const ListedBlock block(mask, mask.row[e], mask.column_bitmap[e]);
    const masks::BlockTokens listed = mask.queries_of(block.index);
    const int64_t queries = listed.count;
    for (int64_t head = key_head * group; head < (key_head + 1) * group; ++head) {
      const auto q = HeadRows<const T>::of(p.q, b, head).block(listed, mask.step);
      const auto dout = HeadRows<const T>::of(p.dout, b, head).block(listed, mask.step);
      const int64_t row0 = (b * p.heads + head) * mask.queries + listed.first;
      const T* lse = static_cast<const T*>(p.lse) + row0;
      const T* delta = static_cast<const T*>(p.delta) + row0;
      pack_columns(q_columns, q, queries, d, scale);
      pack_columns(dout_columns, dout, queries, d, T(1));
      pack_seen_rows(q_rows, d_ld, q, queries, d, scale, block.seen_queries);
      clear_infinite(q_rows, d_ld, queries, d);
      pack_seen_rows(dout_rows, d_ld, dout, queries, d, T(1), block.seen_queries);
      for (int s = 0; s < kStrips<T>; ++s) {
        multiply<2, 1, false>(scores, kWidth, q_columns, kColumnsLd<T>, k_strips + s * strip_size,
                              kWidth, queries, d);
        multiply<2, 1, false>(products, kWidth, dout_columns, kColumnsLd<T>,
                              v_strips + s * strip_size, kWidth, queries, d);
        differentiate(
            scores, products, queries,
            [&](int64_t r, int) { return Vector<T>{} + shift_of(lse[r * mask.step]); },
            [&](int64_t r, int) { return Vector<T>{} + delta[r * mask.step]; });
        if (block.bits != nullptr) {
          hide_from_keys(scores, block.bits, s, queries);
          hide_from_keys(products, block.bits, s, queries);
        }
        multiply<2, 1, true>(dv + s * strip_size, kWidth, dout_rows, d_ld, scores, kWidth, d,
                             queries);
        multiply<2, 1, true>(dk + s * strip_size, kWidth, q_rows, d_ld, products, kWidth, d,
                             queries);
      }
    }
  }
  unpack_strips(HeadRows<T>::of(p.dk, b, key_head).block(own, mask.step), dk, own.count, d, T(1));
  unpack_strips(HeadRows<T>::of(p.dv, b, key_head).block(own, mask.step), dv, own.count, d, T(1));
}

}  // namespace
}  // namespace cpu

void masked_attention_backward_cpu(const MaskedAttentionParams& p, DType dtype) {
  cpu::dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    cpu::make_delta<T>(p);
    const int64_t of_queries = p.batch * p.heads * p.mask.query_blocks;
    const int64_t of_keys = p.batch * p.key_heads * p.mask.key_blocks;
    parallel_tasks(of_keys + of_queries, [&](int64_t task) {
      if (task < of_keys) {  // the longer ones first
        const int64_t row = task / p.mask.key_blocks;
        cpu::keys_backward<T>(p, row / p.key_heads, row % p.key_heads, task % p.mask.key_blocks);
      } else {
        task -= of_keys;
        const int64_t row = task / p.mask.query_blocks;
        cpu::queries_backward<T>(p, row / p.heads, row % p.heads, task % p.mask.query_blocks);
      }
    });
  });
}

}  // namespace seqfuse::ops
