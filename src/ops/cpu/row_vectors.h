// Matrix rows as whole SIMD registers, shared by the row-gathering operators. Include only in this
// folder, whose files are all compiled for the same vector width.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include "base/parallel.h"

namespace seqfuse::ops::cpu {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(kVectorBytes)));
};
template <class T>
using Vector = typename VectorOf<T>::type;

template <class T>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

template <class T>
constexpr int64_t round_up_to_lanes(int64_t n) {
  return (n + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
}

template <class T>
inline Vector<T> load(const T* from) {
  Vector<T> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <class T>
inline void store(T* to, Vector<T> v) {
  std::memcpy(to, &v, sizeof v);
}

namespace detail {
template <class V, int... I>
inline V add_neighbours(V a, V b, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, b, (2 * I)...) + __builtin_shufflevector(a, b, (2 * I + 1)...);
}
}  // namespace detail

// Lane i of the result is the sum of the lanes of v[i], in a fixed tree order. Overwrites v.
template <class T>
inline Vector<T> sum_each(Vector<T> (&v)[kLanes<T>]) {
  constexpr std::make_integer_sequence<int, kLanes<T>> lanes;
#pragma GCC unroll 4
  for (int n = kLanes<T> / 2; n > 0; n /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < n; ++i) v[i] = detail::add_neighbours(v[2 * i], v[2 * i + 1], lanes);
  }
  return v[0];
}

// Sum of the lanes, in the tree order of sum_each.
template <class T>
inline T sum(Vector<T> v) {
  constexpr std::make_integer_sequence<int, kLanes<T>> lanes;
#pragma GCC unroll 4
  for (int n = kLanes<T> / 2; n > 0; n /= 2) v = detail::add_neighbours(v, v, lanes);
  return v[0];
}

// The largest of count values, ignoring NaN; -infinity if there is none. (The compiler would keep
// such a loop scalar.)
template <class T>
inline T largest(const T* values, int64_t count) {
  constexpr T kLowest = -std::numeric_limits<T>::infinity();
  Vector<T> lanes = Vector<T>{} + kLowest;
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) {
    const Vector<T> v = load(values + i);
    lanes = v > lanes ? v : lanes;
  }
  T result = kLowest;
  for (int lane = 0; lane < kLanes<T>; ++lane) result = std::max(result, lanes[lane]);
  for (; i < count; ++i) result = std::max(result, values[i]);
  return result;
}

// The sum of count values, in a fixed order.
template <class T>
inline T sum(const T* values, int64_t count) {
  Vector<T> lanes{};
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) lanes += load(values + i);
  T result = sum<T>(lanes);
  for (; i < count; ++i) result += values[i];
  return result;
}

// Memory for n elements, aligned to a register, not initialised.
template <class T>
class AlignedBuffer {
 public:
  explicit AlignedBuffer(int64_t n)
      : data_(static_cast<T*>(::operator new(static_cast<size_t>(n) * sizeof(T), kAlignment))) {}

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  T& operator[](int64_t i) { return data_.get()[i]; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(T* data) const { ::operator delete(data, kAlignment); }
  };
  std::unique_ptr<T, Free> data_;
};

// The rows of a contiguous [count, dim] matrix at a stride of whole registers: the matrix itself if
// dim is a multiple of the lanes, else a copy with zero-padded rows.
template <class T>
class PaddedRows {
 public:
  PaddedRows(const T* rows, int64_t count, int64_t dim)
      : stride_(round_up_to_lanes<T>(dim)),
        copy_(stride_ == dim ? 0 : count * stride_),
        rows_(stride_ == dim ? rows : copy_.data()) {
    if (stride_ == dim) return;
    parallel_for(count, 1024, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T* to = copy_.data() + i * stride_;
        std::memcpy(to, rows + i * dim, static_cast<size_t>(dim) * sizeof(T));
        std::memset(to + dim, 0, static_cast<size_t>(stride_ - dim) * sizeof(T));
      }
    });
  }

  const T* row(int64_t i) const { return rows_ + i * stride_; }
  int64_t stride() const { return stride_; }

 private:
  int64_t stride_;
  AlignedBuffer<T> copy_;
  const T* rows_;
};

}  // namespace seqfuse::ops::cpu
