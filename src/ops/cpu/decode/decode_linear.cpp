#include "ops/kernels/gemm/decode_linear.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "ops/cpu/float_vectors.h"
#include "ops/cpu/gelu_math.h"

namespace seqfuse::ops {
namespace {

using cpu::Floats;
using cpu::kFloats;

// Sums that a tile keeps in registers beside a weight; x comes from the cache.
#if defined(__AVX512F__)
constexpr int kTileSums = 24;
#else
constexpr int kTileSums = 10;
#endif
constexpr int kLineBytes = 64;
constexpr int64_t kPrefetchBytes = 4096;
constexpr int kMaxTileRows = 8;  // of x; more are several tiles, for which weights are in cache

// x, each row's registers beside those of the other rows: [registers][rows][kFloats], zeros at the end.
class PackedRows {
 public:
  PackedRows(const DecodeLinearParams& params, int64_t first, int64_t rows)
      : first_(first),
        rows_(rows),
        packed_(cpu::round_up_to_lanes<float>(params.in_features) * rows) {
    const int64_t k = params.in_features;
    for (int64_t m = 0; m < rows; ++m) {
      const float* x = params.x + (first + m) * k;
      int64_t i = 0;
      for (; i + kFloats <= k; i += kFloats) cpu::store(at(i, m), cpu::load(x + i));
      if (i < k) cpu::store(at(i, m), cpu::load_floats(x + i, k - i));
    }
  }

  const float* data() const { return packed_.data(); }
  int64_t first() const { return first_; }
  int64_t count() const { return rows_; }

 private:
  float* at(int64_t i, int64_t m) { return packed_.data() + i * rows_ + m * kFloats; }

  int64_t first_, rows_;
  cpu::AlignedBuffer<float> packed_;
};

// sums[o][m] = sum over k of x_mk w_ok, for kOutputs rows of weights and kRows of x. Lane l adds the
// k that are l modulo the lanes, in order; then the lanes are added as a tree. So the order depends
// on neither number of rows.
template <int kOutputs, int kRows, class W>
void tile(const W* weight, int64_t k, const float* packed, float* sums) {
  // The rows of a tile are too short for the processor to see what will be read next.
  const int64_t ahead = std::max(kOutputs * k, kPrefetchBytes / static_cast<int64_t>(sizeof(W)));
  Floats lanes[kOutputs][kRows] = {};
  int64_t i = 0;
  const auto step = [&](auto load_weight) {
#pragma GCC unroll 8
    for (int o = 0; o < kOutputs; ++o) {
      const Floats w = load_weight(weight + o * k + i);
#pragma GCC unroll 16
      for (int m = 0; m < kRows; ++m) {
        lanes[o][m] = cpu::multiply_add(w, cpu::load(packed + m * kFloats), lanes[o][m]);
      }
    }
    packed += kRows * kFloats;
    i += kFloats;
  };
  const auto load = [](const W* w) { return cpu::load_floats(w); };
  constexpr int kSteps = kLineBytes / (kFloats * static_cast<int>(sizeof(W)));  // of a line
  while (i + kSteps * kFloats <= k) {
#pragma GCC unroll 8
    for (int o = 0; o < kOutputs; ++o) __builtin_prefetch(weight + o * k + i + ahead);
#pragma GCC unroll 8
    for (int s = 0; s < kSteps; ++s) step(load);
  }
  while (i + kFloats <= k) step(load);
  if (i < k) step([rest = k - i](const W* w) { return cpu::load_floats(w, rest); });
#pragma GCC unroll 8
  for (int o = 0; o < kOutputs; ++o) {
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) sums[o * kRows + m] = cpu::sum<float>(lanes[o][m]);
  }
}

// The sums of outputs [begin, end) and rows [first, first + kRows) of x, into y.
template <class W, int kRows>
void outputs(const DecodeLinearParams& params, const float* packed, int64_t first, int64_t begin,
             int64_t end) {
  constexpr int kOutputs = std::clamp(kTileSums / kRows, 1, 4);
  const int64_t k = params.in_features;
  const W* weight = static_cast<const W*>(params.weight);
  float* y = params.y + first * params.out_features;
  const auto run = [&]<int count>(std::integral_constant<int, count>, int64_t n) {
    float sums[count * kRows];
    tile<count, kRows>(weight + n * k, k, packed, sums);
    for (int o = 0; o < count; ++o) {
      for (int m = 0; m < kRows; ++m) y[m * params.out_features + n + o] = sums[o * kRows + m];
    }
  };
  int64_t n = begin;
  for (; n + kOutputs <= end; n += kOutputs) run(std::integral_constant<int, kOutputs>{}, n);
  for (; n < end; ++n) run(std::integral_constant<int, 1>{}, n);
}

template <class W>
using Outputs = void (*)(const DecodeLinearParams&, const float*, int64_t, int64_t, int64_t);

template <class W>
constexpr auto kOutputsOfRows = []<int... rows>(std::integer_sequence<int, rows...>) {
  return std::array<Outputs<W>, sizeof...(rows)>{outputs<W, rows + 1>...};
}(std::make_integer_sequence<int, kMaxTileRows>{});

template <class Act>
void finish(const DecodeLinearParams& params, int64_t begin, int64_t end, Act&& act) {
  const int64_t count = end - begin;
  for (int64_t m = 0; m < params.rows; ++m) {
    float* y = params.y + m * params.out_features + begin;
    if (params.scales) {
      const float* scales = params.scales + begin;
#pragma omp simd
      for (int64_t n = 0; n < count; ++n) y[n] *= scales[n];
    }
    if (params.bias) {
      const float* bias = params.bias + begin;
#pragma omp simd
      for (int64_t n = 0; n < count; ++n) y[n] += bias[n];
    }
    act(y, count);
    if (params.residual) {
      const float* residual = params.residual + m * params.out_features + begin;
#pragma omp simd
      for (int64_t n = 0; n < count; ++n) y[n] += residual[n];
    }
  }
}

void finish(const DecodeLinearParams& params, int64_t begin, int64_t end) {
  switch (params.activation) {
    case LinearActivation::none:
      return finish(params, begin, end, [](float*, int64_t) {});
    case LinearActivation::gelu_erf:
      return finish(params, begin, end, [](float* y, int64_t count) {
#pragma omp simd
        for (int64_t n = 0; n < count; ++n) y[n] = cpu::gelu_erf(y[n]);
      });
    case LinearActivation::gelu_tanh:
      return finish(params, begin, end, [](float* y, int64_t count) {
#pragma omp simd
        for (int64_t n = 0; n < count; ++n) y[n] = cpu::gelu_tanh(y[n]);
      });
  }
}

template <class W>
void run(const DecodeLinearParams& params) {
  const int64_t tiles = (params.rows + kMaxTileRows - 1) / kMaxTileRows;
  std::vector<PackedRows> packed;
  packed.reserve(tiles);
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t first = params.rows * t / tiles;
    packed.emplace_back(params, first, params.rows * (t + 1) / tiles - first);
  }
  // A task's weights stay in the second level of cache, for the second tile of rows.
  constexpr int64_t kTaskBytes = 64 << 10;
  const int64_t row_bytes = params.in_features * static_cast<int64_t>(sizeof(W));
  const int64_t grain = std::max<int64_t>(kTaskBytes / row_bytes / 4 * 4, 4);
  parallel_for(params.out_features, grain, [&](int64_t begin, int64_t end) {
    for (const PackedRows& rows : packed) {
      kOutputsOfRows<W>[rows.count() - 1](params, rows.data(), rows.first(), begin, end);
    }
    finish(params, begin, end);
  });
}

}  // namespace

void decode_linear_cpu(const DecodeLinearParams& params, WeightType type) {
  SEQFUSE_CHECK(params.rows <= kMaxDecodeRows, "decode_linear: {} rows; expected at most {}",
                params.rows, kMaxDecodeRows);
  switch (type) {
    case WeightType::f32:
      return run<float>(params);
    case WeightType::f16:
      return run<cpu::Float16>(params);
    case WeightType::bf16:
      return run<cpu::BFloat16>(params);
    case WeightType::i8:
      return run<int8_t>(params);
  }
}

}  // namespace seqfuse::ops
