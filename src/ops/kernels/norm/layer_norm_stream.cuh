// layer_norm_rows.cuh for rows that are too long for registers, and the launchers for rows of any
// length.
#pragma once

#include "ops/kernels/common/add_parts.cuh"
#include "ops/kernels/norm/layer_norm_rows.cuh"

namespace seqfuse::ops::cuda {

constexpr int64_t kStreamPartials = 64;  // parts of dweight and dbias for long rows
constexpr int kStreamGroup = 512;

// A block reads its row three times.
template <class T, int Width, bool Gate>
__global__ void __launch_bounds__(kStreamGroup) norm_forward_stream_kernel(NormForward params) {
  __shared__ float scratch[kStreamGroup / 32];
  const int64_t row = blockIdx.x, dim = params.dim;
  const T* x = static_cast<const T*>(params.x) + row * params.x_stride;
  T* y = static_cast<T*>(params.y) + row * params.y_stride;
  const auto for_each_pack = [&](auto&& visit) {
    for (int64_t j = threadIdx.x * Width; j < dim; j += kStreamGroup * Width)
      visit(j, load<Width>(x, j, dim));
  };

  float sum[1] = {0};
  for_each_pack([&](int64_t, const Pack<T, Width>& pack) {
    for (int k = 0; k < Width; ++k) sum[0] += to_float(pack.v[k]);
  });
  group_sum<kStreamGroup>(sum, scratch);
  const float mean = sum[0] / static_cast<float>(dim);

  float squares[1] = {0};
  for_each_pack([&](int64_t j, const Pack<T, Width>& pack) {
    for (int k = 0; k < Width; ++k) {
      const float d = to_float(pack.v[k]) - mean;
      if (j + k < dim) squares[0] += d * d;
    }
  });
  group_sum<kStreamGroup>(squares, scratch);
  const float rstd = 1 / sqrtf(squares[0] / static_cast<float>(dim) + params.eps);

  for_each_pack([&](int64_t j, Pack<T, Width> pack) {
    const auto w = load_or<Width>(static_cast<const T*>(params.weight), j, dim, 1);
    const auto b = load_or<Width>(static_cast<const T*>(params.bias), j, dim, 0);
    Pack<T, Width> gates;
    if constexpr (Gate)
      gates = load<Width>(static_cast<const T*>(params.u) + row * params.u_stride, j, dim);
    for (int k = 0; k < Width; ++k) {
      const float n = (to_float(pack.v[k]) - mean) * rstd;
      float l = n * to_float(w.v[k]) + to_float(b.v[k]);
      if constexpr (Gate) l = to_float(gates.v[k]) * l * params.mask.factor(row * dim + j + k);
      pack.v[k] = from_float<T>(l);
    }
    store<Width>(y, j, dim, pack);
  });
  if (threadIdx.x == 0) {
    static_cast<float*>(params.mean)[row] = mean;
    static_cast<float*>(params.rstd)[row] = rstd;
  }
}

// The gradient of the layer norm at one element; with Gate, u and the mask are part of it.
template <bool Gate, class T>
__device__ float gradient_of_norm(const NormBackward& params, int64_t row, int64_t j, float dy) {
  if constexpr (!Gate) return dy;
  const float u = to_float(static_cast<const T*>(params.u)[row * params.u_stride + j]);
  return dy * params.mask.factor(row * params.dim + j) * u;
}

// dx, and du with Gate: a block reads its row twice.
template <class T, int Width, bool Gate>
__global__ void __launch_bounds__(kStreamGroup) norm_backward_stream_kernel(NormBackward params) {
  __shared__ float scratch[2 * kStreamGroup / 32];
  const int64_t row = blockIdx.x, dim = params.dim;
  const T* x = static_cast<const T*>(params.x) + row * params.x_stride;
  const T* dy = static_cast<const T*>(params.dy) + row * params.dy_stride;
  T* dx = static_cast<T*>(params.dx) + row * params.dx_stride;
  const float mean = static_cast<const float*>(params.mean)[row];
  const float rstd = static_cast<const float*>(params.rstd)[row];
  const auto for_each_pack = [&](auto&& visit) {
    for (int64_t j = threadIdx.x * Width; j < dim; j += kStreamGroup * Width) {
      float n[Width], g[Width];
      const auto values = load<Width>(x, j, dim), gradients = load<Width>(dy, j, dim);
      const auto w = load_or<Width>(static_cast<const T*>(params.weight), j, dim, 1);
      for (int k = 0; k < Width; ++k) {
        n[k] = (to_float(values.v[k]) - mean) * rstd;
        const float d = to_float(gradients.v[k]);
        g[k] =
            j + k < dim ? gradient_of_norm<Gate, T>(params, row, j + k, d) * to_float(w.v[k]) : 0;
      }
      visit(j, n, g);
    }
  };

  float sums[2] = {0, 0};
  for_each_pack([&](int64_t, const float* n, const float* g) {
    for (int k = 0; k < Width; ++k) {
      sums[0] += g[k];
      sums[1] += g[k] * n[k];
    }
  });
  group_sum<kStreamGroup>(sums, scratch);
  const float mean_g = sums[0] / static_cast<float>(dim),
              mean_gn = sums[1] / static_cast<float>(dim);
  for_each_pack([&](int64_t j, const float* n, const float* g) {
    if constexpr (Gate) {  // before dx, which may overwrite dy
      const auto gradients = load<Width>(dy, j, dim);
      const auto w = load_or<Width>(static_cast<const T*>(params.weight), j, dim, 1);
      const auto b = load_or<Width>(static_cast<const T*>(params.bias), j, dim, 0);
      const auto before =
          load_or<Width>(row_or_null<T>(params.pre_u, row, params.pre_u_stride), j, dim, 0);
      Pack<T, Width> out;
      for (int k = 0; k < Width; ++k) {
        const float masked = to_float(gradients.v[k]) * params.mask.factor(row * dim + j + k);
        float d = masked * (n[k] * to_float(w.v[k]) + to_float(b.v[k]));
        if (params.pre_u) d *= silu_gradient(to_float(before.v[k]));
        out.v[k] = from_float<T>(d);
      }
      store<Width>(static_cast<T*>(params.du) + row * params.du_stride, j, dim, out);
    }
    Pack<T, Width> out, added;
    if constexpr (!Gate)
      added =
          load_or<Width>(row_or_null<T>(params.residual, row, params.residual_stride), j, dim, 0);
    for (int k = 0; k < Width; ++k) {
      float d = rstd * (g[k] - mean_g - n[k] * mean_gn);
      if constexpr (!Gate) d += to_float(added.v[k]);
      out.v[k] = from_float<T>(d);
    }
    store<Width>(dx, j, dim, out);
  });
}

// The parts of dweight and dbias for rows of any length: a thread owns a column, blockIdx.y a part.
// Runs before dx, which may overwrite dy.
template <class T, bool Gate>
__global__ void column_parts_kernel(NormBackward params) {
  const int64_t column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= params.dim) return;
  float dweight = 0, dbias = 0;
  for (int64_t row = blockIdx.y; row < params.rows; row += gridDim.y) {
    const float x = to_float(static_cast<const T*>(params.x)[row * params.x_stride + column]);
    const float dy = to_float(static_cast<const T*>(params.dy)[row * params.dy_stride + column]);
    const float dl = gradient_of_norm<Gate, T>(params, row, column, dy);
    const float mean = static_cast<const float*>(params.mean)[row];
    dweight += dl * ((x - mean) * static_cast<const float*>(params.rstd)[row]);
    dbias += dl;
  }
  float* part = params.workspace + int64_t{blockIdx.y} * 2 * params.dim;
  part[column] = dweight;
  part[params.dim + column] = dbias;
}

// As many blocks for rows in registers as run at a time on the current device, where Threads run on
// a multiprocessor.
template <int Threads>
int64_t resident_blocks(int64_t rows, int64_t dim) {
  int64_t blocks = 0;
  with_group(dim, [&]<int Group>() {
    blocks = std::min<int64_t>(divide_up(rows, kRows<Group>),
                               multiprocessors() * kBlocks<Group, Threads>);
  });
  return blocks;
}

// Blocks of the backward pass on the current device, which are the parts of dweight and dbias.
template <bool Gate>
int64_t norm_backward_partials(int64_t rows, int64_t dim) {
  return dim > kMaxDim ? std::min(rows, kStreamPartials)
                       : resident_blocks<kBackwardThreads<Gate>>(rows, dim);
}

template <bool Gate>
cudaError_t launch_norm_forward(const NormForward& params, DType dtype, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  return dispatch(dtype, {params.x, params.u, params.weight, params.bias, params.y},
                  {params.dim, params.x_stride, params.u_stride, params.y_stride},
                  [&]<class T, int Width>() {
                    if (params.dim > kMaxDim) {
                      norm_forward_stream_kernel<T, Width, Gate>
                          <<<static_cast<unsigned>(params.rows), kStreamGroup, 0, stream>>>(params);
                      return;
                    }
                    const auto blocks = static_cast<unsigned>(
                        resident_blocks<kForwardThreads<T, Width, Gate>>(params.rows, params.dim));
                    with_group(params.dim, [&]<int Group>() {
                      norm_forward_kernel<T, Width, Group, Gate>
                          <<<blocks, kThreads<Group>, 0, stream>>>(params);
                    });
                  });
}

template <class T, int Width, bool Gate>
void launch_norm_backward_rows(const NormBackward& params, int64_t parts, cudaStream_t stream) {
  if (params.dim > kMaxDim) {
    if (params.dweight) {
      const dim3 grid(divide_up(params.dim, 128), static_cast<unsigned>(parts));
      column_parts_kernel<T, Gate><<<grid, 128, 0, stream>>>(params);
    }
    norm_backward_stream_kernel<T, Width, Gate>
        <<<static_cast<unsigned>(params.rows), kStreamGroup, 0, stream>>>(params);
    return;
  }
  with_group(params.dim, [&]<int Group>() {
    const auto kernel = params.dweight ? norm_backward_kernel<T, Width, Group, true, Gate>
                                       : norm_backward_kernel<T, Width, Group, false, Gate>;
    kernel<<<static_cast<unsigned>(parts), kThreads<Group>, 0, stream>>>(params);
  });
}

template <bool Gate>
cudaError_t launch_norm_backward(const NormBackward& params, DType dtype, cudaStream_t stream) {
  const int64_t parts = norm_backward_partials<Gate>(params.rows, params.dim);
  return dispatch(
      dtype,
      {params.x, params.u, params.pre_u, params.residual, params.weight, params.bias, params.dy,
       params.dx, params.du},
      {params.dim, params.x_stride, params.u_stride, params.pre_u_stride, params.residual_stride,
       params.dy_stride, params.dx_stride, params.du_stride},
      [&]<class T, int Width>() {
        if (params.rows > 0) launch_norm_backward_rows<T, Width, Gate>(params, parts, stream);
        const auto add = [&]<class Sum>() {
          add_parts(params.workspace, parts, params.dim, static_cast<Sum*>(params.dweight),
                    static_cast<Sum*>(params.dbias), stream);
        };
        if (!params.dweight) return;
        params.float_gradients ? add.template operator()<float>() : add.template operator()<T>();
      });
}

}  // namespace seqfuse::ops::cuda
