// A warp works on a position. Rows are read once, with an online softmax: the highest logit so far
// scales the sum of exponentials and, with gradients, the weighted sum of rows, which yields
// dhidden. For short rows, groups of 8 lanes take a row each, so a warp works on four; their sums
// are merged at the end. Each group has two rows in flight.
//
// Rows are read twice (stream_kernel) if they have more than 1024 columns, or more than 256 without
// 16-byte loads, or an odd number. These are rare, and each kernel compiles slowly.
#include <cmath>
#include <cstddef>

#include "ops/kernels/common/row_kernels.cuh"
#include "ops/kernels/softmax/sampled_softmax.h"

namespace seqfuse::ops {
namespace {

using namespace cuda;

constexpr int kWarps = 4;
constexpr int64_t kMaxDim = 1024;
constexpr float kCollisionLogit = -5e4F;
constexpr unsigned kAll = 0xFFFFFFFF;

// The binding cannot check ids, which are in GPU memory.
__device__ void check_id(int64_t id, int64_t num_rows) {
  if (id < 0 || id >= num_rows) __trap();
}

// e^x in one instruction; its relative error of about 2^-22 (1 + |x|) is largest where the result
// is smallest. 0 below 2^-126.
__device__ float fast_exp(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 1.44269504F));
  return result;
}

// A lane's part of a row: packs of Width elements, Lanes apart. Width divides dim.
template <class T, int Width, int Lanes, int Items>
struct RowPart {
  static constexpr int kPacks = Items / Width;
  Pack<T, Width> packs[kPacks] = {};  // 0 past the end of the row, which is never read

  static __device__ int column(int p) {
    return (p * Lanes + static_cast<int>(threadIdx.x) % Lanes) * Width;
  }

  // rows: address of the lane's first pack of row 0.
  __device__ void read(const std::byte* rows, int row, int row_bytes, int dim) {
    const auto* from = reinterpret_cast<const Pack<T, Width>*>(rows + int64_t{row} * row_bytes);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column(p) < dim) packs[p] = from[p * Lanes];
    }
  }

  __device__ float get(int i) const { return to_float(packs[i / Width].v[i % Width]); }

  // Returned in every lane of the group.
  __device__ float dot(const RowPart& other) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < Items; ++i) sum += get(i) * other.get(i);
#pragma unroll
    for (int mask = Lanes / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(kAll, sum, mask);
    return sum;
  }
};

// sum_k exp(l_k - highest), and the same weighted sum of rows, over the negatives seen so far.
template <int Items>
struct OnlineSums {
  float highest;
  float exps = 0;
  float rows[Items] = {};

  __device__ void rescale(float to) {
    const float factor = fast_exp(highest - to);
    exps *= factor;
#pragma unroll
    for (int i = 0; i < Items; ++i) rows[i] *= factor;
    highest = to;
  }

  template <class Row>
  __device__ void add(const float (&logits)[2], const Row (&added)[2]) {
    const float both = fmaxf(logits[0], logits[1]);
    if (both > highest) rescale(both);
    const float first = fast_exp(logits[0] - highest), second = fast_exp(logits[1] - highest);
    exps += first + second;
#pragma unroll
    for (int i = 0; i < Items; ++i) rows[i] += first * added[0].get(i) + second * added[1].get(i);
  }

  // Sums over all groups of Lanes lanes; all lanes get the result.
  template <int Lanes>
  __device__ void join() {
#pragma unroll
    for (int mask = Lanes; mask < 32; mask *= 2) {
      rescale(fmaxf(highest, __shfl_xor_sync(kAll, highest, mask)));
      exps += __shfl_xor_sync(kAll, exps, mask);
#pragma unroll
      for (int i = 0; i < Items; ++i) rows[i] += __shfl_xor_sync(kAll, rows[i], mask);
    }
  }
};

// Converts logits [num_negatives] after the first to coefficients [1 + num_negatives]; each lane
// reads what it wrote.
__device__ void write_coefficients(float* coefficients, int64_t num_negatives, float highest,
                                   float exps, float total) {
  const int lane = threadIdx.x % 32;
  // Not p - 1, which cancels when p is near 1.
  if (lane == 0) coefficients[0] = -exps / total;
  const float scale = 1 / total;
  for (int64_t k = lane; k < num_negatives; k += 32)
    coefficients[1 + k] = fast_exp(coefficients[1 + k] - highest) * scale;
}

template <class T, int Width, int Lanes, int Items>
__global__ void __launch_bounds__(32 * kWarps) forward_kernel(SampledSoftmaxParams params) {
  using Row = RowPart<T, Width, Lanes, Items>;
  const int64_t t = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (t >= params.positions) return;
  const int lane = threadIdx.x % 32, group = lane / Lanes, place = lane % Lanes;
  const int dim = static_cast<int>(params.dim), count = static_cast<int>(params.num_negatives);
  const int row_bytes = dim * static_cast<int>(sizeof(T));
  const auto* states = static_cast<const std::byte*>(params.hidden) + Row::column(0) * sizeof(T);
  const auto* table = static_cast<const std::byte*>(params.table) + Row::column(0) * sizeof(T);
  const int32_t* negatives = params.negatives + t * count;
  check_id(params.targets[t], params.num_rows);
  const int target = static_cast<int>(params.targets[t]);
  const auto inverse_temperature = static_cast<float>(1 / params.temperature);

  Row hidden, row;
  hidden.read(states + t * row_bytes, 0, row_bytes, dim);
  row.read(table, target, row_bytes, dim);
  const float positive = hidden.dot(row) * inverse_temperature;
  OnlineSums<Items> sums{.highest = positive};
  float* coefficients =
      params.coefficients ? static_cast<float*>(params.coefficients) + t * (1 + count) : nullptr;

  Row rows[2];
  for (int first = 0; first < count; first += 32) {
    // Lane n has the id, and later the logit, of negative first + n.
    const int own_id = first + lane < count ? negatives[first + lane] : target;
    check_id(own_id, params.num_rows);
    float own_logit = 0;
    const int left = count - first - group * Lanes;  // negatives for this group and later ones
#pragma unroll 1
    for (int i = 0; i < Lanes && first + i < count; i += 2) {
      const int ids[2] = {__shfl_sync(kAll, own_id, i, Lanes),
                          __shfl_sync(kAll, own_id, i + 1, Lanes)};
      rows[0].read(table, ids[0], row_bytes, dim);
      rows[1].read(table, ids[1], row_bytes, dim);
      float logits[2] = {hidden.dot(rows[0]), hidden.dot(rows[1])};
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        logits[n] = ids[n] == target ? kCollisionLogit : logits[n] * inverse_temperature;
        if (place == i + n) own_logit = logits[n];
        if (i + n >= left) logits[n] = -INFINITY;
      }
      sums.add(logits, rows);
    }
    if (coefficients && first + lane < count) coefficients[1 + first + lane] = own_logit;
  }

  sums.template join<Lanes>();
  const float below = positive - sums.highest, total = sums.exps + expf(below);
  if (lane == 0) static_cast<float*>(params.losses)[t] = logf(total) - below;
  if (!coefficients) return;
  write_coefficients(coefficients, count, sums.highest, sums.exps, total);
  if (group > 0) return;
  row.read(table, target, row_bytes, dim);
  float* dhidden = static_cast<float*>(params.dhidden) + t * dim;
  const float scale = inverse_temperature / total;
  constexpr int kStore = Width < 4 ? Width : 4;
#pragma unroll
  for (int i = 0; i < Items; i += kStore) {
    Pack<float, kStore> pack;
#pragma unroll
    for (int k = 0; k < kStore; ++k)
      pack.v[k] = (sums.rows[i + k] - sums.exps * row.get(i + k)) * scale;
    store<kStore>(dhidden, Row::column(i / Width) + i % Width, dim, pack);
  }
}

template <class T>
__global__ void __launch_bounds__(32 * kWarps) stream_kernel(SampledSoftmaxParams params) {
  const int64_t t = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (t >= params.positions) return;
  const int lane = threadIdx.x % 32;
  const int64_t dim = params.dim, count = params.num_negatives, target = params.targets[t];
  const int32_t* negatives = params.negatives + t * count;
  const T* hidden = static_cast<const T*>(params.hidden) + t * dim;
  const T* table = static_cast<const T*>(params.table);
  const auto inverse_temperature = static_cast<float>(1 / params.temperature);
  const auto logit_of = [&](int64_t id) {
    check_id(id, params.num_rows);
    float sum[1] = {0};
    for (int64_t j = lane; j < dim; j += 32)
      sum[0] += to_float(hidden[j]) * to_float(table[id * dim + j]);
    group_sum<32>(sum, nullptr);
    return sum[0] * inverse_temperature;
  };

  const float positive = logit_of(target);
  float* coefficients =
      params.coefficients ? static_cast<float*>(params.coefficients) + t * (1 + count) : nullptr;
  float highest = positive, exps = 0;
  for (int64_t k = 0; k < count; ++k) {
    const int64_t id = negatives[k];
    const float logit = id == target ? kCollisionLogit : logit_of(id);
    if (coefficients && lane == k % 32) coefficients[1 + k] = logit;
    if (logit > highest) {
      exps *= fast_exp(highest - logit);
      highest = logit;
    }
    exps += fast_exp(logit - highest);
  }
  const float below = positive - highest, total = exps + expf(below);
  if (lane == 0) static_cast<float*>(params.losses)[t] = logf(total) - below;
  if (!coefficients) return;
  write_coefficients(coefficients, count, highest, exps, total);
  __syncwarp();
  for (int64_t j = lane; j < dim; j += 32) {
    float sum = coefficients[0] * to_float(table[target * dim + j]);
    for (int64_t k = 0; k < count; ++k)
      sum += coefficients[1 + k] * to_float(table[negatives[k] * dim + j]);
    static_cast<float*>(params.dhidden)[t * dim + j] = sum * inverse_temperature;
  }
}

// The kernel for loads of Width elements; for rows of up to 256 columns if Width is below 16 bytes.
template <class T, int Width>
auto kernel_for(int64_t dim) {
  if (dim <= 64) return forward_kernel<T, Width, 8, 8>;
  if (dim <= 256) return forward_kernel<T, Width, 32, 8>;
  if constexpr (Width * sizeof(T) == 16) {
    if (dim <= kMaxDim) return forward_kernel<T, Width, 32, 32>;
  }
  return stream_kernel<T>;
}

}  // namespace

cudaError_t sampled_softmax_forward_cuda(const SampledSoftmaxParams& params, DType dtype,
                                         cudaStream_t stream) {
  if (params.positions == 0) return cudaSuccess;
  const auto fits = [&](int64_t width) {
    return params.dim % width == 0 &&
           all_aligned({params.hidden, params.table}, width * size_of(dtype)) &&
           all_aligned({params.dhidden}, (width < 4 ? width : 4) * 4);
  };
  return dispatch_type(dtype, [&]<class T>() {
    constexpr int kWide = 16 / sizeof(T);
    const auto kernel = fits(kWide) ? kernel_for<T, kWide>(params.dim)
                        : fits(2)   ? kernel_for<T, 2>(params.dim)
                                    : stream_kernel<T>;
    kernel<<<divide_up(params.positions, kWarps), 32 * kWarps, 0, stream>>>(params);
  });
}

}  // namespace seqfuse::ops
