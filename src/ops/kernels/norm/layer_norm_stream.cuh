// Layer norm of rows that layer_norm_rows.cuh does not keep in registers, one element per load, and
// the launchers for all rows.
#pragma once

#include "ops/kernels/common/add_parts.cuh"
#include "ops/kernels/norm/layer_norm_rows.cuh"

namespace seqfuse::ops::cuda {

constexpr int64_t kStreamPartials = 64;  // parts of dweight and dbias for rows above kMaxDim
constexpr int kStreamThreads = 512;

// Element j of a row that may be absent.
template <class T>
__device__ float value_or(const T* row, int64_t j, float otherwise) {
  return row ? to_float(row[j]) : otherwise;
}

// A block reads its row three times.
template <class T, bool Gate>
__global__ void __launch_bounds__(kStreamThreads) norm_forward_stream_kernel(NormForward params) {
  __shared__ float scratch[kStreamThreads / 32];
  const int64_t row = blockIdx.x, dim = params.dim;
  const T* x = static_cast<const T*>(params.x) + row * params.x_stride;
  const T* u = row_or_null<T>(params.u, row, params.u_stride);
  T* y = static_cast<T*>(params.y) + row * params.y_stride;

  float sum[1] = {0};
  for (int64_t j = threadIdx.x; j < dim; j += kStreamThreads) sum[0] += to_float(x[j]);
  group_sum<kStreamThreads>(sum, scratch);
  const float mean = sum[0] / static_cast<float>(dim);

  float squares[1] = {0};
  for (int64_t j = threadIdx.x; j < dim; j += kStreamThreads) {
    const float d = to_float(x[j]) - mean;
    squares[0] += d * d;
  }
  group_sum<kStreamThreads>(squares, scratch);
  const float rstd = 1 / sqrtf(squares[0] / static_cast<float>(dim) + params.eps);

  for (int64_t j = threadIdx.x; j < dim; j += kStreamThreads) {
    const float n = (to_float(x[j]) - mean) * rstd;
    float l = n * value_or(static_cast<const T*>(params.weight), j, 1) +
              value_or(static_cast<const T*>(params.bias), j, 0);
    if constexpr (Gate) l *= to_float(u[j]) * params.mask.factor(row * dim + j);
    y[j] = from_float<T>(l);
  }
  if (threadIdx.x == 0) {
    static_cast<float*>(params.mean)[row] = mean;
    static_cast<float*>(params.rstd)[row] = rstd;
  }
}

// The gradient of the layer norm at one element; with Gate, it includes u and the mask.
template <bool Gate, class T>
__device__ float gradient_of_norm(const NormBackward& params, int64_t row, int64_t j, float dy) {
  if constexpr (!Gate) return dy;
  const float u = to_float(static_cast<const T*>(params.u)[row * params.u_stride + j]);
  return dy * params.mask.factor(row * params.dim + j) * u;
}

// dx, and du with Gate: a block reads its row twice.
template <class T, bool Gate>
__global__ void __launch_bounds__(kStreamThreads) norm_backward_stream_kernel(NormBackward params) {
  __shared__ float scratch[2 * kStreamThreads / 32];
  const int64_t row = blockIdx.x, dim = params.dim;
  const T* x = static_cast<const T*>(params.x) + row * params.x_stride;
  const T* dy = static_cast<const T*>(params.dy) + row * params.dy_stride;
  const T* weight = static_cast<const T*>(params.weight);
  const T* bias = static_cast<const T*>(params.bias);
  const T* pre_u = row_or_null<T>(params.pre_u, row, params.pre_u_stride);
  const T* residual = row_or_null<T>(params.residual, row, params.residual_stride);
  T* dx = static_cast<T*>(params.dx) + row * params.dx_stride;
  [[maybe_unused]] T* du = static_cast<T*>(params.du) + row * params.du_stride;
  const float mean = static_cast<const float*>(params.mean)[row];
  const float rstd = static_cast<const float*>(params.rstd)[row];
  // n, and the gradient g of n, element by element.
  const auto for_each_element = [&](auto&& visit) {
    for (int64_t j = threadIdx.x; j < dim; j += kStreamThreads) {
      const float dl = gradient_of_norm<Gate, T>(params, row, j, to_float(dy[j]));
      visit(j, (to_float(x[j]) - mean) * rstd, dl * value_or(weight, j, 1));
    }
  };

  float sums[2] = {0, 0};
  for_each_element([&](int64_t, float n, float g) {
    sums[0] += g;
    sums[1] += g * n;
  });
  group_sum<kStreamThreads>(sums, scratch);
  const float mean_g = sums[0] / static_cast<float>(dim),
              mean_gn = sums[1] / static_cast<float>(dim);
  for_each_element([&](int64_t j, float n, float g) {
    if constexpr (Gate) {  // before dx, which may overwrite dy
      const float masked = to_float(dy[j]) * params.mask.factor(row * dim + j);
      float d = masked * (n * value_or(weight, j, 1) + value_or(bias, j, 0));
      if (pre_u) d *= silu_gradient(to_float(pre_u[j]));
      du[j] = from_float<T>(d);
    }
    float d = rstd * (g - mean_g - n * mean_gn);
    if constexpr (!Gate) d += value_or(residual, j, 0);
    dx[j] = from_float<T>(d);
  });
}

// Parts of dweight and dbias for rows of any length: a thread has a column, blockIdx.y is the part.
// Runs before dx is computed, which may overwrite dy.
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

// How many blocks for rows in registers run at once on the current device, with Threads per SM.
template <int Threads>
int64_t resident_blocks(int64_t rows, int64_t dim) {
  int64_t wanted = 0, resident = 0;
  with_group<kMaxDim>(dim, [&]<int Group>() {
    wanted = divide_up(rows, kRows<Group>);
    resident = int64_t{multiprocessors()} * kBlocks<Group, Threads>;
  });
  return wanted < resident ? wanted : resident;
}

// Number of parts of dweight and dbias that the backward pass writes on the current device: its
// blocks, if rows are kept in registers.
template <bool Gate>
int64_t norm_backward_partials(int64_t rows, int64_t dim) {
  if (dim <= kMaxDim) return resident_blocks<kBackwardThreads<Gate>>(rows, dim);
  return rows < kStreamPartials ? rows : kStreamPartials;
}

template <bool Gate>
cudaError_t launch_norm_forward(const NormForward& params, DType dtype, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  return dispatch(
      dtype, {params.x, params.u, params.weight, params.bias, params.y},
      {params.dim, params.x_stride, params.u_stride, params.y_stride}, [&]<class T, int Width>() {
        if (params.dim > kMaxDimOf<Width>) {
          norm_forward_stream_kernel<T, Gate>
              <<<static_cast<unsigned>(params.rows), kStreamThreads, 0, stream>>>(params);
          return;
        }
        const auto blocks = static_cast<unsigned>(
            resident_blocks<kForwardThreads<T, Width, Gate>>(params.rows, params.dim));
        with_group<kMaxDimOf<Width>>(params.dim, [&]<int Group>() {
          norm_forward_kernel<T, Width, Group, Gate>
              <<<blocks, kThreads<Group>, 0, stream>>>(params);
        });
      });
}

template <class T, int Width, bool Gate>
void launch_norm_backward_rows(const NormBackward& params, int64_t parts, cudaStream_t stream) {
  if (params.dim > kMaxDimOf<Width>) {
    if (params.dweight) {
      const dim3 grid(divide_up(params.dim, 128), static_cast<unsigned>(parts));
      column_parts_kernel<T, Gate><<<grid, 128, 0, stream>>>(params);
    }
    norm_backward_stream_kernel<T, Gate>
        <<<static_cast<unsigned>(params.rows), kStreamThreads, 0, stream>>>(params);
    return;
  }
  with_group<kMaxDimOf<Width>>(params.dim, [&]<int Group>() {
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
