// The relative bias by position and time of one sequence, laid out for vector loads: the lanes of a
// query vector are adjacent.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/cpu/row_vectors.h"
#include "ops/cpu/scratch.h"
#include "ops/kernels/attention/common/time_edges.h"
#include "ops/kernels/attention/hstu_attention.h"

namespace seqfuse::ops::cpu {

// Maps a whole-number time difference to its bucket through a table of cells: see time_buckets.h.
class TimeBuckets {
 public:
  static constexpr int kCount = attention::kBuckets;

  static const TimeBuckets& instance() {
    static const TimeBuckets buckets;
    return buckets;
  }

  int operator()(double difference) const {
    const double x = std::max(std::fabs(difference), 1.0);
    const int64_t cell = (std::bit_cast<int64_t>(x) >> kCellShift) - kFirstCell;
    return first_[cell] + (x >= next_edge_[cell]);
  }

 private:
  static constexpr int kCellShift = attention::kTimeCellShift + 32;
  static constexpr int kCells = attention::kTimeCells + 4;  // differences may be rounded to 2^64
  static constexpr int64_t kFirstCell = std::bit_cast<int64_t>(1.0) >> kCellShift;

  TimeBuckets() {
    const attention::TimeEdges& edges = attention::time_edges();
    int bucket = 0;
    // The last bucket has no end.
    const auto next_edge = [&] {
      return bucket + 1 < kCount ? static_cast<double>(edges.edge[bucket + 1])
                                 : std::numeric_limits<double>::infinity();
    };
    for (int cell = 0; cell < kCells; ++cell) {
      const auto begin = std::bit_cast<double>((cell + kFirstCell) << kCellShift);
      while (begin >= next_edge()) ++bucket;
      first_[cell] = bucket;
      next_edge_[cell] = next_edge();
    }
  }

  std::array<int32_t, kCells> first_;
  std::array<double, kCells> next_edge_;
};

template <class T>
class RelativeBias {
 public:
  RelativeBias(const HstuAttentionParams& p, int64_t b, int64_t keys, Scratch& scratch) {
    if (p.position_bias) {
      // by_distance_[i - j] = position_bias[(N - 1) + j - i]
      const T* center = static_cast<const T*>(p.position_bias) + (p.position_bias_size - 1) / 2;
      by_distance_ = scratch.take<T>(2 * keys + 2 * kPad);
      std::fill_n(by_distance_, 2 * keys + 2 * kPad, T(0));
      by_distance_ += keys + kPad;
      for (int64_t m = 1 - keys; m < keys; ++m) by_distance_[m] = center[-m];
    }
    if (p.time_bias) {
      const T* weights = static_cast<const T*>(p.time_bias);
      by_bucket_ = scratch.take<T>(TimeBuckets::kCount);
      for (int64_t c = 0; c < TimeBuckets::kCount; ++c) {
        by_bucket_[c] = weights[std::min(c, p.num_time_buckets - 1)];
      }
      if (keys == 0) return;  // neither scores nor a first time
      const int64_t* times = p.timestamps + p.k_offsets[b];
      const auto since_first = [&](int64_t t) {
        return static_cast<double>(static_cast<__int128>(t) - times[0]);
      };
      event_times_ = scratch.take<double>(keys);
      request_times_ = scratch.take<double>(keys + kPad) + kPad;
      std::fill(request_times_ - kPad, request_times_, 0.0);
      for (int64_t i = 0; i < keys; ++i) event_times_[i] = since_first(times[i]);
      std::copy(event_times_ + 1, event_times_ + keys, request_times_);
      request_times_[keys - 1] =
          p.request_times ? since_first(p.request_times[b]) : event_times_[keys - 1];
    }
  }

  bool by_position() const { return by_distance_ != nullptr; }
  bool by_time() const { return by_bucket_ != nullptr; }

  // buckets[l] = bucket of (query i + l, key j); arbitrary if i + l < 0 (before the sequence).
  template <int kCount>
  void buckets(int32_t* buckets, int64_t i, int64_t j) const {
    const TimeBuckets& bucket_of = TimeBuckets::instance();
    const double event = event_times_[j];
    const double* request = request_times_ + i;
    for (int l = 0; l < kCount; ++l) buckets[l] = bucket_of(request[l] - event);
  }

  // scores[l] += bias of (query i + l, key j).
  template <int kCount>
  void add_by_position(T* scores, int64_t i, int64_t j) const {
    const T* bias = by_distance_ + (i - j);
    for (int l = 0; l < kCount; ++l) scores[l] += bias[l];
  }
  template <int kCount>
  void add_by_time(T* scores, const int32_t* buckets) const {
    for (int l = 0; l < kCount; ++l) scores[l] += by_bucket_[buckets[l]];
  }

 private:
  static constexpr int64_t kPad = 2 * kLanes<T>;  // a strip may begin before the sequence

  T* by_distance_ = nullptr;
  T* by_bucket_ = nullptr;
  double* event_times_ = nullptr;
  double* request_times_ = nullptr;
};

// The gradients of both biases for one sequence and head.
template <class T>
class RelativeBiasGradient {
 public:
  RelativeBiasGradient(const RelativeBias<T>& bias, int64_t keys, Scratch& scratch) : keys_(keys) {
    if (bias.by_position()) {
      by_distance_ = scratch.take<T>(2 * keys + 2 * kPad);
      std::fill_n(by_distance_, 2 * keys + 2 * kPad, T(0));
      by_distance_ += keys + kPad;
    }
    if (bias.by_time()) {
      by_bucket_ = scratch.take<T>(TimeBuckets::kCount * kW);
      std::fill_n(by_bucket_, TimeBuckets::kCount * kW, T(0));
    }
  }

  // Adds ds [rows keys from j][kVecs vectors of queries from i], leading dimension ld, along the
  // diagonals i - j. Each row has a vector of zeros before and after it.
  template <int kVecs>
  void add_by_position(const T* ds, int64_t ld, int64_t rows, int64_t i, int64_t j) {
    constexpr int64_t kWidth = kVecs * kW;
    T* diagonals = by_distance_ + (i - j);
    for (int64_t m = kWidth - kW; m > -rows - kW; m -= kW) {
      Vector<T> sum = load(diagonals + m);
      const int64_t end = std::min(rows, kWidth - m);
      for (int64_t r = std::max<int64_t>(0, 1 - kW - m); r < end; ++r) {
        sum += load(ds + r * ld + m + r);
      }
      store(diagonals + m, sum);
    }
  }

  // One histogram per lane: neighbours mostly hit the same bucket and would wait for each other.
  template <int kCount>
  void add_by_time(const T* ds, const int32_t* buckets) {
    for (int l = 0; l < kCount; ++l) by_bucket_[buckets[l] * kW + l % kW] += ds[l];
  }

  // Writes the gradients [2N - 1 + buckets] of this sequence and head.
  void write(const HstuAttentionParams& p, T* out) const {
    if (by_distance_) {
      T* center = out + (p.position_bias_size - 1) / 2;
      std::fill_n(out, p.position_bias_size, T(0));
      for (int64_t m = 1 - keys_; m < keys_; ++m) center[-m] = by_distance_[m];
      out += p.position_bias_size;
    }
    if (by_bucket_) {
      std::fill_n(out, p.num_time_buckets, T(0));
      for (int64_t c = 0; c < TimeBuckets::kCount; ++c) {
        double sum = 0;
        for (int l = 0; l < kW; ++l) sum += static_cast<double>(by_bucket_[c * kW + l]);
        out[std::min(c, p.num_time_buckets - 1)] += static_cast<T>(sum);
      }
    }
  }

 private:
  static constexpr int64_t kW = kLanes<T>, kPad = 3 * kW;

  int64_t keys_;
  T* by_distance_ = nullptr;
  T* by_bucket_ = nullptr;
};

}  // namespace seqfuse::ops::cpu
