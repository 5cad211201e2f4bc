// The kernels of layer_norm and of layer_norm_gate, which is the same with Gate: y is multiplied by
// u and by dropout factors.
//
// A row is read once: a group of 32, 64, 128 or 512 threads keeps it in registers, 16 elements a
// thread, in 16-byte loads where pointers and strides allow them. Rows of more than 8192 elements
// are read again from the second-level cache instead (layer_norm_stream.cuh).
//
// The backward pass gives every block a fixed set of rows. It sums its part of dweight and dbias in
// registers and writes it to the workspace; a second kernel adds the parts in order, without
// atomics.
#pragma once

#include "ops/kernels/dropout_mask.cuh"
#include "ops/kernels/row_kernels.cuh"

namespace seqfuse::ops::cuda {

constexpr int kItems = 16;  // elements of a row that a thread keeps
constexpr int64_t kMaxDim = 512 * kItems;

// Fields as in LayerNormParams and LayerNormGateParams; u and mask: Gate only.
struct NormForward {
  const void *x, *u, *weight, *bias;
  void *y, *mean, *rstd;
  int64_t rows, dim;
  int64_t x_stride, u_stride, y_stride;
  float eps;
  DropoutMask mask;
};

// bias, u, pre_u, du and mask: Gate only; residual: not with Gate.
struct NormBackward {
  const void *x, *u, *pre_u, *residual, *weight, *bias, *mean, *rstd, *dy;
  void *dx, *du, *dweight, *dbias;
  float* workspace;
  int64_t rows, dim;
  int64_t x_stride, u_stride, pre_u_stride, residual_stride, dy_stride, dx_stride, du_stride;
  DropoutMask mask;
};

// A row of a matrix that may be absent.
template <class T>
__device__ const T* row_or_null(const void* matrix, int64_t row, int64_t stride) {
  return matrix ? static_cast<const T*>(matrix) + row * stride : nullptr;
}

__device__ inline float silu_derivative(float x) {
  const float sigmoid = 1 / (1 + __expf(-x));
  return sigmoid * (1 + x * (1 - sigmoid));
}

template <int Group>
constexpr int kRows = Group == 32 ? 4 : 1;  // rows that a block works on at a time

template <int Group>
constexpr int kThreads = Group * kRows<Group>;

template <bool Gate, int Group>
using GateMask = RowMask<Group, Gate ? Group * kItems : 0>;

template <class T, int Width, int Group, bool Gate>
__global__ void __launch_bounds__(kThreads<Group>) norm_forward_kernel(NormForward params) {
  constexpr int kPacks = kItems / Width;
  using Mask = GateMask<Gate, Group>;
  __shared__ float scratch[Group / 32];
  __shared__ uint32_t words[kRows<Group>][Mask::kWords];
  const int64_t row = int64_t{blockIdx.x} * kRows<Group> + threadIdx.x / Group, dim = params.dim;
  if (row >= params.rows) return;  // a whole warp, or no thread of the block
  const int lane = threadIdx.x % Group;
  const T* x = static_cast<const T*>(params.x) + row * params.x_stride;
  T* y = static_cast<T*>(params.y) + row * params.y_stride;
  Mask mask(params.mask, words[threadIdx.x / Group]);

  Pack<T, Width> values[kPacks], gates[Gate ? kPacks : 1];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    values[p] = load<Width>(x, (p * Group + lane) * Width, dim);
    if constexpr (Gate) {
      const T* u = static_cast<const T*>(params.u) + row * params.u_stride;
      gates[p] = load<Width>(u, (p * Group + lane) * Width, dim);
    }
  }
  if constexpr (Gate) mask.draw(row * dim, dim);  // while the loads are under way

  float sum[1] = {0};
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
#pragma unroll
    for (int k = 0; k < Width; ++k) sum[0] += to_float(values[p].v[k]);
  }
  group_sum<Group>(sum, scratch);
  const float mean = sum[0] / static_cast<float>(dim);

  float squares[1] = {0};
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
#pragma unroll
    for (int k = 0; k < Width; ++k) {
      const float d = to_float(values[p].v[k]) - mean;
      if ((p * Group + lane) * Width + k < dim) squares[0] += d * d;
    }
  }
  group_sum<Group>(squares, scratch);
  const float rstd = 1 / sqrtf(squares[0] / static_cast<float>(dim) + params.eps);

#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int j = (p * Group + lane) * Width;
    if (j >= dim) break;
    const auto w = load_or<Width>(static_cast<const T*>(params.weight), j, dim, 1);
    const auto b = load_or<Width>(static_cast<const T*>(params.bias), j, dim, 0);
    [[maybe_unused]] const uint32_t kept = Gate ? mask.kept(j) : 0;
#pragma unroll
    for (int k = 0; k < Width; ++k) {
      const float n = (to_float(values[p].v[k]) - mean) * rstd;
      float l = n * to_float(w.v[k]) + to_float(b.v[k]);
      if constexpr (Gate) l = to_float(gates[p].v[k]) * l * mask.factor(kept, k);
      values[p].v[k] = from_float<T>(l);
    }
    store<Width>(y, j, dim, values[p]);
  }
  if (lane == 0) {
    static_cast<float*>(params.mean)[row] = mean;
    static_cast<float*>(params.rstd)[row] = rstd;
  }
}

// The groups of a block add their sums in order and write them to part [2, dim]. totals: shared,
// used where a block has several groups.
template <int Width, int Group, int Columns>
__device__ void write_part(const float (&dweight)[kItems], const float (&dbias)[kItems],
                           float (&totals)[2][Columns], float* part, int64_t dim) {
  const int lane = threadIdx.x % Group, group = threadIdx.x / Group;
  for (int turn = 0; turn < kRows<Group>; ++turn) {
    if (turn == group) {
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const int j = (i / Width * Group + lane) * Width + i % Width;
        if (j >= dim) continue;
        float w = dweight[i], b = dbias[i];
        if constexpr (kRows<Group> > 1) {
          if (turn > 0) {
            w += totals[0][j];
            b += totals[1][j];
          }
          totals[0][j] = w;
          totals[1][j] = b;
        }
        if (turn == kRows<Group> - 1) {
          part[j] = w;
          part[dim + j] = b;
        }
      }
    }
    __syncthreads();
  }
}

// Affine: with the block's part of dweight and dbias, workspace[blockIdx.x].
template <class T, int Width, int Group, bool Affine, bool Gate>
__global__ void __launch_bounds__(kThreads<Group>, 512 / kThreads<Group>)
    norm_backward_kernel(NormBackward params) {
  constexpr int kPacks = kItems / Width;
  using Mask = GateMask<Gate, Group>;
  __shared__ float scratch[2 * Group / 32];
  __shared__ uint32_t words[kRows<Group>][Mask::kWords];
  const int64_t dim = params.dim;
  const int lane = threadIdx.x % Group, group = threadIdx.x / Group;
  const T* weight = static_cast<const T*>(params.weight);
  float dweight[kItems] = {}, dbias[kItems] = {};
  Mask mask(params.mask, words[group]);

  for (int64_t row = int64_t{blockIdx.x} * kRows<Group> + group; row < params.rows;
       row += int64_t{gridDim.x} * kRows<Group>) {
    const T* x = static_cast<const T*>(params.x) + row * params.x_stride;
    const T* dy = static_cast<const T*>(params.dy) + row * params.dy_stride;
    T* dx = static_cast<T*>(params.dx) + row * params.dx_stride;
    const float mean = static_cast<const float*>(params.mean)[row];
    const float rstd = static_cast<const float*>(params.rstd)[row];

    Pack<T, Width> values[kPacks], gradients[kPacks], added[Gate ? 1 : kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int j = (p * Group + lane) * Width;
      values[p] = load<Width>(x, j, dim);
      gradients[p] = load<Width>(dy, j, dim);
      if constexpr (!Gate)
        added[p] =
            load_or<Width>(row_or_null<T>(params.residual, row, params.residual_stride), j, dim, 0);
    }
    // The gradient of the layer norm; 0 beyond the end of the row.
    float dl[kItems];
    if constexpr (Gate) {
      const T* u = static_cast<const T*>(params.u) + row * params.u_stride;
      T* du = static_cast<T*>(params.du) + row * params.du_stride;
      mask.draw(row * dim, dim);
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        const int j = (p * Group + lane) * Width;
        const auto gates = load<Width>(u, j, dim);
        const auto before =
            load_or<Width>(row_or_null<T>(params.pre_u, row, params.pre_u_stride), j, dim, 0);
        const auto w = load_or<Width>(weight, j, dim, 1);
        const auto b = load_or<Width>(static_cast<const T*>(params.bias), j, dim, 0);
        const uint32_t kept = mask.kept(j);
#pragma unroll
        for (int k = 0; k < Width; ++k) {
          const float masked = to_float(gradients[p].v[k]) * mask.factor(kept, k);
          const float n = (to_float(values[p].v[k]) - mean) * rstd;
          dl[p * Width + k] = masked * to_float(gates.v[k]);
          float d = masked * (n * to_float(w.v[k]) + to_float(b.v[k]));
          if (params.pre_u) d *= silu_derivative(to_float(before.v[k]));
          gradients[p].v[k] = from_float<T>(d);
        }
        store<Width>(du, j, dim, gradients[p]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kItems; ++i) dl[i] = to_float(gradients[i / Width].v[i % Width]);
    }

    float sums[2] = {0, 0};  // of g and of g n
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const auto w = load_or<Width>(weight, (p * Group + lane) * Width, dim, 1);
#pragma unroll
      for (int k = 0; k < Width; ++k) {
        const float n = (to_float(values[p].v[k]) - mean) * rstd, d = dl[p * Width + k];
        const float g = d * to_float(w.v[k]);
        sums[0] += g;
        sums[1] += g * n;
        if constexpr (Affine) {
          dweight[p * Width + k] += d * n;
          dbias[p * Width + k] += d;
        }
      }
    }
    group_sum<Group>(sums, scratch);
    const float mean_g = sums[0] / static_cast<float>(dim),
                mean_gn = sums[1] / static_cast<float>(dim);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int j = (p * Group + lane) * Width;
      if (j >= dim) break;
      const auto w = load_or<Width>(weight, j, dim, 1);
#pragma unroll
      for (int k = 0; k < Width; ++k) {
        const float n = (to_float(values[p].v[k]) - mean) * rstd;
        const float g = dl[p * Width + k] * to_float(w.v[k]);
        float d = rstd * (g - mean_g - n * mean_gn);
        if constexpr (!Gate) d += to_float(added[p].v[k]);
        values[p].v[k] = from_float<T>(d);
      }
      store<Width>(dx, j, dim, values[p]);
    }
  }

  if constexpr (Affine) {
    __shared__ float totals[2][kRows<Group> == 1 ? 1 : Group * kItems];
    write_part<Width, Group>(dweight, dbias, totals,
                             params.workspace + int64_t{blockIdx.x} * 2 * dim, dim);
  }
}

// launch.template operator()<Group>() for the smallest group that can keep a row.
template <class Launch>
void with_group(int64_t dim, Launch&& launch) {
  if (dim <= 32 * kItems) {
    launch.template operator()<32>();
  } else if (dim <= 64 * kItems) {
    launch.template operator()<64>();
  } else if (dim <= 128 * kItems) {
    launch.template operator()<128>();
  } else {
    launch.template operator()<512>();
  }
}

}  // namespace seqfuse::ops::cuda
