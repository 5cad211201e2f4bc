#include "ops/kernels/attention/decode_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "ops/cpu/float_vectors.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/softmax_exp.h"

namespace seqfuse::ops {
namespace {

using cpu::Floats;
using cpu::kFloats;

// y: head_dim elements, then zeros up to a whole register.
void rotate(const float* x, const float* cos, const float* sin, int64_t half, int64_t dim,
            float* y) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[i + half];
    y[i] = a * cos[i] - b * sin[i];
    y[i + half] = b * cos[i] + a * sin[i];
  }
  std::copy(x + 2 * half, x + dim, y + 2 * half);
  std::fill(y + dim, y + cpu::round_up_to_lanes<float>(dim), 0.0F);
}

template <class T>
void store_row(const float* x, int64_t dim, T* to) {
  for (int64_t i = 0; i < dim; ++i) cpu::store_float(x[i], to + i);
}

// q: padded with zeros. The lanes of the product, to be added.
template <class T>
Floats product_lanes(const float* q, const T* key, int64_t dim) {
  Floats lanes{};
  int64_t i = 0;
  for (; i + kFloats <= dim; i += kFloats) {
    lanes = cpu::multiply_add(cpu::load(q + i), cpu::load_floats(key + i), lanes);
  }
  if (i < dim) {
    lanes = cpu::multiply_add(cpu::load(q + i), cpu::load_floats(key + i, dim - i), lanes);
  }
  return lanes;
}

// scores[j] = q . keys[j], count of them. Each sum is the same whether computed alone or with others.
template <class T>
void score(const float* q, const T* keys, int64_t count, int64_t dim, float* scores) {
  int64_t j = 0;
  for (; j + kFloats <= count; j += kFloats) {
    Floats lanes[kFloats];
    for (int i = 0; i < kFloats; ++i) lanes[i] = product_lanes(q, keys + (j + i) * dim, dim);
    cpu::store(scores + j, cpu::sum_each<float>(lanes));
  }
  for (; j < count; ++j) scores[j] = cpu::sum<float>(product_lanes(q, keys + j * dim, dim));
}

// sums += weights[j] values[j], for kRegisters registers of a row from column `from`; the last may be
// a part. dim: elements from there to the end of the row.
template <class T, int kRegisters>
void add_weighted(const float* weights, const T* values, int64_t count, int64_t stride, int64_t dim,
                  float* sums) {
  Floats lanes[kRegisters];
  for (int r = 0; r < kRegisters; ++r) lanes[r] = cpu::load(sums + r * kFloats);
  const int64_t last = std::min<int64_t>(dim - (kRegisters - 1) * kFloats, kFloats);
  const auto run = [&](auto load_last) {
    for (int64_t j = 0; j < count; ++j) {
      const Floats weight = Floats{} + weights[j];
      const T* value = values + j * stride;
#pragma GCC unroll 8
      for (int r = 0; r + 1 < kRegisters; ++r) {
        lanes[r] = cpu::multiply_add(weight, cpu::load_floats(value + r * kFloats), lanes[r]);
      }
      constexpr int kLast = kRegisters - 1;
      lanes[kLast] = cpu::multiply_add(weight, load_last(value + kLast * kFloats), lanes[kLast]);
    }
  };
  if (last == kFloats) {
    run([](const T* value) { return cpu::load_floats(value); });
  } else {
    run([last](const T* value) { return cpu::load_floats(value, last); });
  }
  for (int r = 0; r < kRegisters; ++r) cpu::store(sums + r * kFloats, lanes[r]);
}

constexpr int kMaxRegisters = 8;

template <class T>
using AddWeighted = void (*)(const float*, const T*, int64_t, int64_t, int64_t, float*);

template <class T>
constexpr auto kAddWeighted = []<int... n>(std::integer_sequence<int, n...>) {
  return std::array<AddWeighted<T>, sizeof...(n)>{add_weighted<T, n + 1>...};
}(std::make_integer_sequence<int, kMaxRegisters>{});

template <class T>
void attend(const DecodeAttentionParams& params, int64_t row, int64_t head) {
  const DecodeAttentionRow& seen = params.row[row];
  const int64_t dim = params.head_dim, half = params.half;
  const int64_t padded = cpu::round_up_to_lanes<float>(dim);
  float* out = params.out + (row * params.heads + head) * dim;
  if (!seen.active) {
    std::fill_n(out, dim, 0.0F);
    return;
  }
  const int64_t from = row * params.row_stride + head * params.head_stride;
  const int64_t cached = (row * params.heads + head) * params.slots * dim;
  T* keys = static_cast<T*>(params.keys) + cached;
  T* values = static_cast<T*>(params.values) + cached;
  const float* cos = params.cos + row * half;
  const float* sin = params.sin + row * half;

  cpu::Scratch& scratch = cpu::Scratch::fresh();
  float* q = scratch.take<float>(padded);
  float* start_q = scratch.take<float>(padded);
  float* sums = scratch.take<float>(padded);
  float* scores = scratch.take<float>(params.slots);

  rotate(params.k + from, cos, sin, half, dim, q);
  store_row(q, dim, keys + seen.slot * dim);
  store_row(params.v + from, dim, values + seen.slot * dim);
  rotate(params.q + from, cos, sin, half, dim, q);
  rotate(params.q + from, params.start_cos + row * half, params.start_sin + row * half, half, dim,
         start_q);

  const std::array<SlotRange, 3> ranges = {SlotRange{0, seen.first}, seen.newest[0],
                                           seen.newest[1]};
  int64_t count = 0;
  for (const SlotRange& range : ranges) {
    const int64_t length = range.end - range.begin;
    score(&range == &ranges[0] ? start_q : q, keys + range.begin * dim, length, dim,
          scores + count);
    count += length;
  }
  const float scale = 1 / std::sqrt(static_cast<float>(dim));
  const float largest = cpu::largest(scores, count);
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) scores[j] = cpu::exp_or_zero(scale * (scores[j] - largest));
  const float total = cpu::sum(scores, count);

  std::fill_n(sums, padded, 0.0F);
  const float* weights = scores;
  for (const SlotRange& range : ranges) {
    const int64_t length = range.end - range.begin;
    for (int64_t d = 0; d < dim; d += kMaxRegisters * kFloats) {
      const int64_t registers = std::min<int64_t>((padded - d) / kFloats, kMaxRegisters);
      kAddWeighted<T>[registers - 1](weights, values + range.begin * dim + d, length, dim, dim - d,
                                     sums + d);
    }
    weights += length;
  }
  for (int64_t d = 0; d < dim; ++d) out[d] = sums[d] / total;
}

template <class T>
void run(const DecodeAttentionParams& params) {
  int64_t most = 0;  // keys that a row sees
  for (int64_t row = 0; row < params.rows; ++row) {
    const DecodeAttentionRow& seen = params.row[row];
    int64_t count = seen.first;
    for (const SlotRange& range : seen.newest) count += range.end - range.begin;
    most = std::max(most, count);
  }
  // Heads of a task: fewer multiplications than this are done sooner than a thread is woken.
  constexpr int64_t kTaskProducts = 1 << 15;
  const int64_t grain = std::max<int64_t>(kTaskProducts / (2 * (most + 1) * params.head_dim), 1);
  parallel_for(params.rows * params.heads, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) attend<T>(params, i / params.heads, i % params.heads);
  });
}

}  // namespace

void decode_attention_cpu(const DecodeAttentionParams& params, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return run<float>(params);
    case DType::f16:
      return run<cpu::Float16>(params);
    case DType::bf16:
      return run<cpu::BFloat16>(params);
    case DType::f64:
      throw_error("decode_attention: a cache of float64; expected float32, float16 or bfloat16");
  }
}

}  // namespace seqfuse::ops
