#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "ops/cpu/attention/masked_attention_blocks.h"
#include "ops/cpu/dispatch.h"

namespace seqfuse::ops {
namespace cpu {
namespace {

// The running softmax of one strip: each lane's largest score, the sum of its weights, and the
// weighted sum of values [d][lane], both relative to the largest score.
template <class T>
struct RunningSoftmax {
  static constexpr int kW = kLanes<T>, kWidth = kStripWidth<T>;
  static constexpr T kLowest = -std::numeric_limits<T>::infinity();

  Vector<T> largest[2], total[2];

  RunningSoftmax() {
    for (int c = 0; c < 2; ++c) {
      largest[c] = Vector<T>{} + kLowest;
      total[c] = Vector<T>{};
    }
  }

  // scores [keys][lane]; turns them into weights and rescales sums.
  void add(T* scores, int64_t keys, T* sums, int64_t d) {
    Vector<T> factor[2];
    for (int c = 0; c < 2; ++c) {
      Vector<T> most = largest[c];
      for (int64_t j = 0; j < keys; ++j) {
        const Vector<T> s = load(scores + j * kWidth + c * kW);
        most = s > most ? s : most;
      }
      // Without any key yet, all weights must be 0, not NaN.
      const Vector<T> base = most == kLowest ? Vector<T>{} : most;
      factor[c] = weight_of<T>(largest[c] - base);
      Vector<T> sum{};
      for (int64_t j = 0; j < keys; ++j) {
        T* const at = scores + j * kWidth + c * kW;
        const Vector<T> weight = weight_of<T>(load(at) - base);
        store(at, weight);
        sum += weight;
      }
      total[c] = total[c] * factor[c] + sum;
      largest[c] = most;
    }
    for (int64_t i = 0; i < d; ++i) {
      for (int c = 0; c < 2; ++c) {
        T* const at = sums + i * kWidth + c * kW;
        store(at, load(at) * factor[c]);
      }
    }
  }

  void finish(T* sums, int64_t d) const {
    for (int64_t i = 0; i < d; ++i) {
      for (int c = 0; c < 2; ++c) {
        T* const at = sums + i * kWidth + c * kW;
        store(at, total[c] == T(0) ? Vector<T>{} : load(at) / total[c]);
      }
    }
  }

  T log_sum(int lane) const {
    const T sum = total[lane / kW][lane % kW];
    return sum == T(0) ? kLowest : largest[lane / kW][lane % kW] + std::log(sum);
  }
};

template <class T>
void attend(const MaskedAttentionParams& p, int64_t b, int64_t head, int64_t query_block) {
  constexpr int kWidth = kStripWidth<T>;
  const masks::BlockMaskView& mask = p.mask;
  const int64_t d = p.head_dim, d_ld = round_up_to_lanes<T>(d), strip_size = d * kWidth;
  const masks::BlockTokens own = mask.queries_of(query_block);
  if (own.count == 0) return;
  const auto q = HeadRows<const T>::of(p.q, b, head).block(own, mask.step);
  const auto k = HeadRows<const T>::of(p.k, b, p.key_head(head));
  const auto v = HeadRows<const T>::of(p.v, b, p.key_head(head));

  Scratch& scratch = Scratch::fresh();
  T* q_strips = scratch.take<T>(kStrips<T> * strip_size);
  T* sums = scratch.take<T>(kStrips<T> * strip_size);
  T* k_columns = scratch.take<T>(d * kColumnsLd<T>);
  T* v_rows = scratch.take<T>(kBlock * d_ld);
  T* scores = scratch.take<T>(kBlock * kWidth);
  RunningSoftmax<T> softmax[kStrips<T>];
  std::fill_n(sums, kStrips<T> * strip_size, T(0));
  pack_strips(q_strips, q, own.count, d, static_cast<T>(p.scale));

  const int64_t list = mask.sequence(b) * mask.query_blocks + query_block;
  for (int32_t e = mask.row_begin[list]; e < mask.row_begin[list + 1]; ++e) {
    const ListedBlock block(mask, mask.column[e], mask.bitmap[e]);
    const masks::BlockTokens listed = mask.keys_of(block.index);
    const int64_t keys = listed.count;
    pack_columns(k_columns, k.block(listed, mask.step), keys, d, T(1));
    pack_seen_rows(v_rows, d_ld, v.block(listed, mask.step), keys, d, T(1), block.seen_keys);
    for (int s = 0; s < kStrips<T>; ++s) {
      const auto multiply_keys = [&] {
        multiply<2, 1, false>(scores, kWidth, k_columns, kColumnsLd<T>, q_strips + s * strip_size,
                              kWidth, keys, d);
      };
      if (block.bits == nullptr) {
        multiply_keys();
      } else {
        const LanesOfQueries<T> lanes(block.bits, s);
        if (!lanes.any()) continue;
        multiply_keys();
        lanes.hide(scores, keys, RunningSoftmax<T>::kLowest);
      }
      softmax[s].add(scores, keys, sums + s * strip_size, d);
      multiply<2, 1, true>(sums + s * strip_size, kWidth, v_rows, d_ld, scores, kWidth, d, keys);
    }
  }
  for (int s = 0; s < kStrips<T>; ++s) softmax[s].finish(sums + s * strip_size, d);
  unpack_strips(HeadRows<T>::of(p.out, b, head).block(own, mask.step), sums, own.count, d, T(1));
  T* lse = static_cast<T*>(p.lse) + (b * p.heads + head) * mask.queries + own.first;
  for (int i = 0; i < own.count; ++i)
    lse[int64_t{i} * mask.step] = softmax[i / kWidth].log_sum(i % kWidth);
}

}  // namespace
}  // namespace cpu

void masked_attention_forward_cpu(const MaskedAttentionParams& p, DType dtype) {
  cpu::dispatch(dtype, [&](auto zero) {
    parallel_tasks(p.batch * p.heads * p.mask.query_blocks, [&](int64_t task) {
      const int64_t row = task / p.mask.query_blocks;
      cpu::attend<decltype(zero)>(p, row / p.heads, row % p.heads, task % p.mask.query_blocks);
    });
  });
}

}  // namespace seqfuse::ops
