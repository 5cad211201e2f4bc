#include <algorithm>
#include <numeric>
#include <vector>

#include "base/parallel.h"
#include "ops/cpu/attention/hstu_attention_bias.h"
#include "ops/cpu/attention/hstu_attention_gemm.h"
#include "ops/cpu/attention/hstu_attention_pack.h"
#include "ops/cpu/attention/hstu_attention_tiles.h"
#include "ops/cpu/dispatch.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/simd_math.h"
#include "ops/kernels/attention/hstu_attention.h"

namespace seqfuse::ops {
namespace cpu {
namespace {

// A task is one (sequence, head) pair, b * heads + h. One thread sums all gradients of a pair, in a
// fixed order. Longest first.
void list_tasks(const HstuAttentionParams& p, std::vector<int64_t>& tasks) {
  tasks.resize(static_cast<size_t>(p.batch * p.heads));
  std::iota(tasks.begin(), tasks.end(), 0);
  const auto cost = [&](int64_t task) {
    const SequenceShape shape(p, task / p.heads);
    return shape.queries * shape.keys;
  };
  std::stable_sort(tasks.begin(), tasks.end(),
                   [&](int64_t a, int64_t b) { return cost(a) > cost(b); });
}

// The gradients of one (sequence, head).
//   a = silu(s) M    ds = (dout v^T) silu'(s) M    dv = a^T dout    dk = ds^T q    dq = ds k
// dout is scaled by 1 / S and q by alpha as they are packed; dq is scaled by alpha at the end.
template <class T>
class HeadGradient {
 public:
  HeadGradient(const HstuAttentionBackwardParams& params, int64_t task, Scratch& scratch)
      : p_(params.forward),
        params_(params),
        task_(task),
        head_(task % p_.heads),
        shape_(p_, task / p_.heads),
        strips_(strip_count<T>(shape_.queries)),
        lead_(strips_ * kWidth - shape_.queries),
        d_(p_.head_dim),
        d_ld_((d_ + kW - 1) / kW * kW),
        bias_(p_, task / p_.heads, shape_.keys, scratch),
        bias_gradient_(bias_, shape_.keys, scratch) {
    strip_ = scratch.take<Strip<T>>(strips_);
    const int64_t columns = strips_ * d_ * kWidth, rows = shape_.queries * d_ld_;
    for (T** p : {&q_columns_, &dout_columns_, &dq_columns_}) *p = scratch.take<T>(columns);
    for (T** p : {&q_rows_, &dout_rows_}) *p = scratch.take<T>(rows);
    for (T** p : {&k_columns_, &v_columns_}) *p = scratch.take<T>(d_ * kKeyLd);
    for (T** p : {&k_rows_, &dk_, &dv_}) *p = scratch.take<T>(kKeyBlock * d_ld_);
    weights_ = scratch.take<T>(kKeyBlock * kWidth);
    // A row of zeros before ds and between its rows.
    ds_ = scratch.take<T>(kW + kKeyBlock * (kWidth + kW)) + kW;
    std::fill_n(ds_ - kW, kW, T(0));
    buckets_ = scratch.take<int32_t>(kKeyBlock * kWidth);
  }

  void run() {
    pack_queries();
    for (int64_t begin = 0; begin < shape_.keys; begin += kKeyBlock) {
      const KeyRange block{begin, std::min(begin + kKeyBlock, shape_.keys)};
      pack_keys(block);
      for (int64_t s = 0; s < strips_; ++s) {
        for (const Segment& segment : strip_[s].segments(block)) {
          segment.vecs == 2 ? add<2>(s, segment, begin) : add<1>(s, segment, begin);
        }
      }
      const int64_t row = shape_.k_begin + begin, keys = block.hi - block.lo;
      unpack_rows(rows_of<T>(params_.dk, row, head_), params_.dk.row_stride, dk_, d_ld_, keys, d_);
      unpack_rows(rows_of<T>(params_.dv, row, head_), params_.dv.row_stride, dv_, d_ld_, keys, d_);
    }
    T* dq = rows_of<T>(params_.dq, shape_.q_begin, head_);
    for_each_query_vector([&](int64_t offset, int64_t first) {
      unpack_transposed(dq, params_.dq.row_stride, dq_columns_ + offset, kWidth, first,
                        shape_.queries, d_, static_cast<T>(p_.alpha));
    });
    if (params_.bias_workspace) {
      const int64_t size = p_.position_bias_size + p_.num_time_buckets;
      bias_gradient_.write(p_, static_cast<T*>(params_.bias_workspace) + task_ * size);
    }
  }

 private:
  static constexpr int kW = kLanes<T>, kWidth = Strip<T>::kWidth;
  static constexpr int64_t kKeyLd = kKeyBlock + kW;

  // body(offset into the arrays of columns, first query) for each vector of queries.
  template <class Body>
  void for_each_query_vector(Body&& body) {
    for (int64_t vec = 0; vec < 2 * strips_; ++vec) {
      body(vec / 2 * d_ * kWidth + vec % 2 * kW, vec * kW - lead_);
    }
  }

  void pack_queries() {
    const SequenceMask mask(p_, task_ / p_.heads, shape_.keys);
    for (int64_t s = 0; s < strips_; ++s) {
      new (&strip_[s]) Strip<T>(mask, shape_.shift() + s * kWidth - lead_, shape_.shift());
    }
    const T alpha = static_cast<T>(p_.alpha);
    const T scale = T(1) / static_cast<T>(p_.scaling_seqlen);
    const T* q = rows_of<const T>(p_.q, shape_.q_begin, head_);
    const T* dout = rows_of<const T>(params_.dout, shape_.q_begin, head_);
    for_each_query_vector([&](int64_t offset, int64_t first) {
      pack_transposed(q_columns_ + offset, kWidth, q, p_.q.row_stride, first, shape_.queries, d_,
                      alpha);
      pack_transposed(dout_columns_ + offset, kWidth, dout, params_.dout.row_stride, first,
                      shape_.queries, d_, scale);
    });
    pack_rows(q_rows_, d_ld_, q, p_.q.row_stride, shape_.queries, d_, alpha);
    pack_rows(dout_rows_, d_ld_, dout, params_.dout.row_stride, shape_.queries, d_, scale);
    std::fill_n(dq_columns_, strips_ * d_ * kWidth, T(0));
  }

  void pack_keys(KeyRange block) {
    const int64_t keys = block.hi - block.lo;
    const T* k = rows_of<const T>(p_.k, shape_.k_begin, head_);
    const T* v = rows_of<const T>(p_.v, shape_.k_begin, head_);
    for (int64_t j = 0; j < keys; j += kW) {
      pack_transposed(k_columns_ + j, kKeyLd, k, p_.k.row_stride, block.lo + j, shape_.keys, d_,
                      T(1));
      pack_transposed(v_columns_ + j, kKeyLd, v, p_.v.row_stride, block.lo + j, shape_.keys, d_,
                      T(1));
    }
    pack_rows(k_rows_, d_ld_, k + block.lo * p_.k.row_stride, p_.k.row_stride, keys, d_, T(1));
    std::fill_n(dk_, keys * d_ld_, T(0));
    std::fill_n(dv_, keys * d_ld_, T(0));
  }

  // Adds what one segment contributes to every gradient.
  template <int kVecs>
  void add(int64_t s, const Segment& segment, int64_t block_begin) {
    constexpr int kLd = kVecs * kW, kDsLd = kLd + kW;
    const int64_t columns = s * d_ * kWidth + segment.vec * kW;
    const int64_t j = segment.keys.lo - block_begin;
    const int64_t rows = segment.keys.hi - segment.keys.lo;
    multiply<kVecs, 1, false>(weights_, kLd, k_columns_ + j, kKeyLd, q_columns_ + columns, kWidth,
                              rows, d_);
    multiply<kVecs, 1, false>(ds_, kDsLd, v_columns_ + j, kKeyLd, dout_columns_ + columns, kWidth,
                              rows, d_);
    differentiate<kVecs>(strip_[s], segment);
    multiply<kVecs, 1, true>(dq_columns_ + columns, kWidth, k_rows_ + j * d_ld_, d_ld_, ds_, kDsLd,
                             d_, rows);
    // Lanes before the first query have no row to store.
    const int64_t first = s * kWidth + segment.vec * kW - lead_;
    const int64_t lane = std::max<int64_t>(0, -first), lanes = kLd - lane;
    if (lanes > 0) {
      const int64_t query = (first + lane) * d_ld_;
      add_rows<kLd>(dv_ + j * d_ld_, weights_ + lane, dout_rows_ + query, rows, lanes);
      add_rows<kDsLd>(dk_ + j * d_ld_, ds_ + lane, q_rows_ + query, rows, lanes);
    }
    const int64_t i = strip_[s].first() + segment.vec * kW;
    if (params_.d_position_bias) {
      bias_gradient_.template add_by_position<kVecs>(ds_, kDsLd, rows, i, segment.keys.lo);
    }
    if (params_.d_time_bias) {
      for (int64_t r = 0; r < rows; ++r) {
        bias_gradient_.template add_by_time<kLd>(ds_ + r * kDsLd, buckets_ + r * kLd);
      }
    }
  }

  // sums [rows, d] += a [rows, lanes] b [lanes, d].
  template <int kLd>
  void add_rows(T* sums, const T* a, const T* b, int64_t rows, int64_t lanes) const {
    int64_t c = 0;
    for (; c + 2 * kW <= d_ld_; c += 2 * kW) {
      multiply<2, kLd, true>(sums + c, d_ld_, a, 1, b + c, d_ld_, rows, lanes);
    }
    if (c < d_ld_) multiply<1, kLd, true>(sums + c, d_ld_, a, 1, b + c, d_ld_, rows, lanes);
  }

  // weights_: s to silu(s) M; ds_: dout v^T to ds.
  template <int kVecs>
  void differentiate(const Strip<T>& strip, const Segment& segment) {
    constexpr int kLd = kVecs * kW, kDsLd = kLd + kW;
    const int64_t i = strip.first() + segment.vec * kW;
    T *weights = weights_, *ds = ds_;
    int32_t* buckets = buckets_;
    for (int64_t j = segment.keys.lo; j < segment.keys.hi; ++j) {
      if (bias_.by_position()) bias_.template add_by_position<kLd>(weights, i, j);
      if (bias_.by_time()) {
        bias_.template buckets<kLd>(buckets, i, j);
        bias_.template add_by_time<kLd>(weights, buckets);
      }
      for (int l = 0; l < kLd; l += kW) {
        const Vector<T> score = load(weights + l), gate = sigmoid(score), weight = score * gate;
        store(weights + l, weight);
        store(ds + l, load(ds + l) * (gate + weight * (T(1) - gate)));
      }
      if (!strip.sees_fully(segment, j)) {
        strip.template mask<kLd>(weights, segment.vec, j);
        strip.template mask<kLd>(ds, segment.vec, j);
      }
      std::fill_n(ds + kLd, kW, T(0));
      weights += kLd;
      ds += kDsLd;
      buckets += kLd;
    }
  }

  const HstuAttentionParams& p_;
  const HstuAttentionBackwardParams& params_;
  int64_t task_, head_;
  SequenceShape shape_;
  int64_t strips_, lead_;  // lead: lanes of the first strip before query 0
  int64_t d_, d_ld_;
  RelativeBias<T> bias_;
  RelativeBiasGradient<T> bias_gradient_;
  Strip<T>* strip_;
  T *q_columns_, *dout_columns_, *dq_columns_;  // [strip][d][lane]
  T *q_rows_, *dout_rows_;                      // [query][d]
  T *k_columns_, *v_columns_;                   // [d][key] of one block
  T *k_rows_, *dk_, *dv_;                       // [key][d] of one block
  T *weights_, *ds_;                            // [key][lane] of one segment
  int32_t* buckets_;                            // like weights
};

// out[c] = the sum of column c of rows [count, stride] in order, in float64.
template <class T>
void sum_rows(T* out, const T* rows, int64_t count, int64_t stride, int64_t columns) {
  parallel_for(columns, 64, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      double sum = 0;
      for (int64_t r = 0; r < count; ++r) sum += static_cast<double>(rows[r * stride + c]);
      out[c] = static_cast<T>(sum);
    }
  });
}

}  // namespace
}  // namespace cpu

void hstu_attention_backward_cpu(const HstuAttentionBackwardParams& params, DType dtype) {
  const HstuAttentionParams& p = params.forward;
  thread_local std::vector<int64_t> tasks_of_thread;
  std::vector<int64_t>& tasks = tasks_of_thread;
  cpu::list_tasks(p, tasks);
  cpu::dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_tasks(static_cast<int64_t>(tasks.size()), [&](int64_t task) {
      cpu::HeadGradient<T>(params, tasks[static_cast<size_t>(task)], cpu::Scratch::fresh()).run();
    });
    const T* rows = static_cast<const T*>(params.bias_workspace);
    const int64_t count = p.batch * p.heads, size = p.position_bias_size + p.num_time_buckets;
    if (params.d_position_bias) {
      cpu::sum_rows(static_cast<T*>(params.d_position_bias), rows, count, size,
                    p.position_bias_size);
    }
    if (params.d_time_bias) {
      cpu::sum_rows(static_cast<T*>(params.d_time_bias), rows + p.position_bias_size, count, size,
                    p.num_time_buckets);
    }
  });
}

}  // namespace seqfuse::ops
