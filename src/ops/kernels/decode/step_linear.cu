// A unit of work is 16 rows of one W by a chunk of k; each of a block's 16 warps has a slice of the
// chunk, whose x it keeps in registers. Blocks, one on an SM, have neighbouring units. Loads run
// kSteps ahead of the products, from one unit to the next and, before the first, while the kernel
// before this one still runs: weights do not depend on it.
//
// Warps add their sums in shared memory. Where a row has several units (several chunks, or two
// linear layers that are added), the block that comes last adds their sums, in order.
#include "ops/kernels/decode/step_linear.h"

#include <algorithm>

#include "ops/kernels/decode/programmatic_launch.cuh"
#include "ops/kernels/decode/weight_stream.cuh"

namespace seqfuse::ops {
namespace cuda {
namespace {

constexpr int kWarps = 16, kThreads = kWarps * 32;
constexpr int kRows = 16;          // of a unit
constexpr int kPitch = kRows + 2;  // of a column of sums in shared memory
constexpr int kMostColumns = 16;

template <class W>
constexpr int kLoad = 16 / sizeof(W);  // elements that a lane loads at a time
template <class W>
constexpr int kStepK = 4 * kLoad<W>;  // elements of a row that a warp loads at a time
template <class W>
constexpr int kSteps = sizeof(W) == 2 ? 5 : 3;  // of a slice, at most

struct Layer {
  const char* weight;
  const float* scales;
  const void *bias, *x, *norm_weight, *norm_bias;
  void* y;
  int n, k;
  int slice;   // elements of k that a warp has in a chunk; a multiple of kStepK
  int chunks;  // of k
  int tiles;   // of n
  LinearActivation activation;
};

struct Arguments {
  Layer layers[2];
  int units[2];   // of each layer
  int parts;      // units of a tile; 1: none to add
  bool together;  // the layers are added
  int batch;
  float eps;
  const void* residual;
  float* sums;    // [tiles of all layers, parts, columns, rows]
  int* arrivals;  // [tiles of all layers]; 0 between launches
};

struct Unit {
  int layer, chunk, tile;
};

__device__ Unit unit_of(const Arguments& a, int u) {
  const int layer = u >= a.units[0];
  if (layer) u -= a.units[0];
  const int tiles = a.layers[layer].tiles;
  return {layer, u / tiles, u % tiles};
}

// The two rows of a lane at one step.
struct Rows {
  uint4 top, bottom;
};

template <class W>
__device__ Rows load_rows(const Arguments& a, const Unit& unit, int step) {
  const Layer& layer = a.layers[unit.layer];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int within = step * kStepK<W> + lane % 4 * kLoad<W>;
  const int k = (unit.chunk * kWarps + warp) * layer.slice + within;
  const int row = unit.tile * kRows + lane / 4;
  Rows rows{};
  if (within >= layer.slice || k >= layer.k) return rows;
  const char* from = layer.weight + (int64_t{row} * layer.k + k) * sizeof(W);
  if (row < layer.n) rows.top = load_weights(from);
  if (row + 8 < layer.n) rows.bottom = load_weights(from + int64_t{8} * layer.k * sizeof(W));
  return rows;
}

// Mean and 1 / standard deviation of the rows of x, a warp each.
template <class T>
__device__ void find_statistics(const Arguments& a, const Layer& layer, float2* statistics) {
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32;
  if (row < a.batch) {
    const T* x = static_cast<const T*>(layer.x) + int64_t{row} * layer.k;
    const auto sum_of = [&](auto&& term) {
      float sum = 0;
      for (int j = lane * 8; j < layer.k; j += 256) {
        const auto pack = *reinterpret_cast<const Pack<T, 8>*>(x + j);
#pragma unroll
        for (const T& v : pack.v) sum += term(to_float(v));
      }
#pragma unroll
      for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xFFFFFFFF, sum, mask);
      return sum;
    };
    const float mean = sum_of([](float v) { return v; }) / static_cast<float>(layer.k);
    const float variance =
        sum_of([&](float v) { return (v - mean) * (v - mean); }) / static_cast<float>(layer.k);
    if (lane == 0) statistics[row] = {mean, 1 / sqrtf(variance + a.eps)};
  }
  __syncthreads();
}

// The lane's elements of x for all steps of a chunk.
template <class T, class W, int kColumns>
__device__ void load_x(const Arguments& a, const Unit& unit, const float2* statistics,
                       uint32_t (&x)[kSteps<W>][kColumns / 8][8 / sizeof(W)]) {
  const Layer& layer = a.layers[unit.layer];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int s = 0; s < kSteps<W>; ++s) {
    const int within = s * kStepK<W> + lane % 4 * kLoad<W>;
    const int k = (unit.chunk * kWarps + warp) * layer.slice + within;
    const bool inside = within < layer.slice && k < layer.k;
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
      const int column = n * 8 + lane / 4;
#pragma unroll
      for (int part = 0; part < kLoad<W> / 8; ++part) {
        Pack<T, 8> pack{};
        if (inside && column < a.batch) {
          const int j = k + part * 8;
          pack = *reinterpret_cast<const Pack<T, 8>*>(static_cast<const T*>(layer.x) +
                                                      int64_t{column} * layer.k + j);
          if (layer.norm_weight) {
            const float2 row = statistics[column];
            const auto weight =
                *reinterpret_cast<const Pack<T, 8>*>(static_cast<const T*>(layer.norm_weight) + j);
            const auto bias =
                *reinterpret_cast<const Pack<T, 8>*>(static_cast<const T*>(layer.norm_bias) + j);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
              const float normal = (to_float(pack.v[i]) - row.x) * row.y;
              pack.v[i] = from_float<T>(normal * to_float(weight.v[i]) + to_float(bias.v[i]));
            }
          }
        }
        const auto& words = reinterpret_cast<const uint4&>(pack);
        x[s][n][part * 4 + 0] = words.x;
        x[s][n][part * 4 + 1] = words.y;
        x[s][n][part * 4 + 2] = words.z;
        x[s][n][part * 4 + 3] = words.w;
      }
    }
  }
}

template <class T>
__device__ float rounded(float v) {
  return to_float(from_float<T>(v));
}

__device__ float activated(float v, LinearActivation activation) {
  if (activation == LinearActivation::gelu_erf)
    return v * 0.5F * (1 + erff(v * 0.70710678118654752F));
  if (activation == LinearActivation::gelu_tanh) {
    const float inner = 0.79788456080286536F * (v + 0.044715F * v * v * v);
    return 0.5F * v * (1 + tanhf(inner));
  }
  return v;
}

// W x + bias, from the sum of the products.
template <class T>
__device__ float linear_of(const Layer& layer, float sum, int row) {
  if (layer.scales) sum *= layer.scales[row];
  if (layer.bias) sum += to_float(static_cast<const T*>(layer.bias)[row]);
  return activated(rounded<T>(sum), layer.activation);
}

// Writes y at one row and column. sums[p] is part p's.
template <class T>
__device__ void write(const Arguments& a, int layer, int row, int column, const float* sums,
                      int64_t stride) {
  const auto total = [&](int first, int count) {
    float sum = 0;
    for (int p = 0; p < count; ++p) sum += __ldcg(sums + (first + p) * stride);
    return sum;
  };
  const Layer& first = a.layers[layer];
  float y = linear_of<T>(first, total(0, first.chunks), row);
  const int64_t at = int64_t{column} * first.n + row;
  if (a.together) {
    y = rounded<T>(y);
    if (a.units[1] > 0)
      y = rounded<T>(
          rounded<T>(linear_of<T>(a.layers[1], total(first.chunks, a.layers[1].chunks), row)) + y);
    y += to_float(static_cast<const T*>(a.residual)[at]);
  }
  static_cast<T*>(first.y)[at] = from_float<T>(y);
}

// What a unit's sums become: y, or a part of it. By kColumns * kRows threads, number `thread` of
// them; barrier: theirs alone.
template <class T, int kColumns>
__device__ void finish(const Arguments& a, const Unit& unit, const float* shared_sums, int thread,
                       int barrier, int* last) {
  constexpr int kOutputs = kColumns * kRows;
  const int column = thread / kRows, row_of_tile = thread % kRows;
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w)
    sum += shared_sums[(w * kColumns + column) * kPitch + row_of_tile];
  const int row = unit.tile * kRows + row_of_tile;
  const bool wanted = row < a.layers[unit.layer].n && column < a.batch;
  const int first_layer = a.together ? 0 : unit.layer;
  if (a.parts == 1) {
    if (wanted) {
      const Layer& layer = a.layers[unit.layer];
      const int64_t at = int64_t{column} * layer.n + row;
      float y = linear_of<T>(layer, sum, row);
      if (a.together) y = rounded<T>(y) + to_float(static_cast<const T*>(a.residual)[at]);
      static_cast<T*>(layer.y)[at] = from_float<T>(y);
    }
    return;
  }
  const int part = unit.chunk + (a.together && unit.layer ? a.layers[0].chunks : 0);
  const int tile = unit.tile + (!a.together && unit.layer ? a.layers[0].tiles : 0);
  const int parts = a.together ? a.parts : a.layers[unit.layer].chunks;
  float* sums = a.sums + int64_t{tile} * a.parts * kOutputs + thread;
  __stcg(sums + part * kOutputs, sum);
  __threadfence();
  asm volatile("bar.sync %0, %1;\n" ::"r"(barrier), "n"(kOutputs) : "memory");
  if (thread == 0) *last = atomicAdd(a.arrivals + tile, 1) == parts - 1;
  asm volatile("bar.sync %0, %1;\n" ::"r"(barrier), "n"(kOutputs) : "memory");
  if (!*last) return;
  __threadfence();
  if (wanted) write<T>(a, first_layer, row, column, sums, kOutputs);
  if (thread == 0) a.arrivals[tile] = 0;
}

template <class T, class W, int kColumns>
__global__ void __launch_bounds__(kThreads, 1)
    step_linear_kernel(const __grid_constant__ Arguments a) {
  constexpr int kOutputs = kColumns * kRows, kTeams = kThreads / kOutputs;
  __shared__ float sums[2][kWarps * kColumns * kPitch];
  __shared__ float2 statistics[kMostColumns];
  __shared__ int last[kTeams];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int all = a.units[0] + a.units[1];
  const auto share = [&](int64_t b) { return static_cast<int>(b * all / gridDim.x); };
  const int begin = share(blockIdx.x), end = share(blockIdx.x + 1);

  Unit unit = unit_of(a, begin);
  Rows ring[kSteps<W>];
#pragma unroll
  for (int s = 0; s < kSteps<W>; ++s) ring[s] = load_rows<W>(a, unit, s);
  wait_for_previous_kernel();
  allow_next_kernel();
  // Layers of one launch that have a norm have the same x.
  if (a.layers[0].norm_weight) find_statistics<T>(a, a.layers[0], statistics);

  uint32_t x[kSteps<W>][kColumns / 8][8 / sizeof(W)];
  load_x<T, W, kColumns>(a, unit, statistics, x);
  for (int u = begin; u < end; ++u) {
    const bool more = u + 1 < end;
    const Unit next = more ? unit_of(a, u + 1) : unit;
    float c[kColumns / 8][4] = {};
#pragma unroll
    for (int s = 0; s < kSteps<W>; ++s) {
      multiply_step<T, W, kColumns>(c, ring[s].top, ring[s].bottom, x[s]);
      if (more) ring[s] = load_rows<W>(a, next, s);
    }
    float* mine = sums[u % 2] + warp * kColumns * kPitch;
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
      const int column = n * 8 + lane % 4 * 2, row = lane / 4;
      mine[column * kPitch + row] = c[n][0];
      mine[(column + 1) * kPitch + row] = c[n][1];
      mine[column * kPitch + row + 8] = c[n][2];
      mine[(column + 1) * kPitch + row + 8] = c[n][3];
    }
    __syncthreads();
    // Threads take turns, so that the others go on; barrier 0 is the whole block's.
    const int team = u % kTeams;
    if (static_cast<int>(threadIdx.x) / kOutputs == team)
      finish<T, kColumns>(a, unit, sums[u % 2], threadIdx.x % kOutputs, 1 + team, last + team);
    if (more && (next.layer != unit.layer || next.chunk != unit.chunk))
      load_x<T, W, kColumns>(a, next, statistics, x);
    unit = next;
  }
}

int divided(int64_t n, int64_t d) {
  return static_cast<int>((n + d - 1) / d);
}

template <class W>
Layer layer_of(const StepLinear& linear) {
  constexpr int kGrain = kWarps * kStepK<W>;
  const int chunks = divided(linear.k, kGrain * kSteps<W>);
  return {.weight = static_cast<const char*>(linear.weight),
          .scales = linear.scales,
          .bias = linear.bias,
          .x = linear.x,
          .norm_weight = linear.norm_weight,
          .norm_bias = linear.norm_bias,
          .y = linear.y,
          .n = static_cast<int>(linear.n),
          .k = static_cast<int>(linear.k),
          .slice = divided(divided(linear.k, chunks), kGrain) * kStepK<W>,
          .chunks = chunks,
          .tiles = divided(linear.n, kRows),
          .activation = linear.activation};
}

template <class W>
Arguments arguments_of(const StepLinearParams& params) {
  Arguments a{};
  int tiles = 0;
  for (int i = 0; i < params.count; ++i) {
    a.layers[i] = layer_of<W>(params.linear[i]);
    a.units[i] = a.layers[i].tiles * a.layers[i].chunks;
    tiles += a.layers[i].tiles;
  }
  a.together = params.residual != nullptr;
  a.parts = a.together ? a.layers[0].chunks + a.layers[1].chunks
                       : std::max(a.layers[0].chunks, a.layers[1].chunks);
  a.batch = static_cast<int>(params.batch);
  a.eps = static_cast<float>(params.norm_eps);
  a.residual = params.residual;
  a.arrivals = static_cast<int*>(params.workspace);
  a.sums = static_cast<float*>(params.workspace) + divided(tiles, 64) * 64;
  return a;
}

template <class T, class W>
cudaError_t launch(const StepLinearParams& params, cudaStream_t stream) {
  const Arguments a = arguments_of<W>(params);
  const int blocks = std::min(multiprocessors(), a.units[0] + a.units[1]);
  const auto kernel =
      params.batch <= 8 ? step_linear_kernel<T, W, 8> : step_linear_kernel<T, W, 16>;
  return launch_programmatic(kernel, dim3(blocks), dim3(kThreads), 0, stream, a);
}

template <class T>
cudaError_t launch_for_weights(const StepLinearParams& params, cudaStream_t stream) {
  return params.linear[0].scales ? launch<T, int8_t>(params, stream) : launch<T, T>(params, stream);
}

}  // namespace
}  // namespace cuda

int64_t step_linear_workspace_bytes(const StepLinearParams& params) {
  const bool int8 = params.linear[0].scales != nullptr;
  const cuda::Arguments a =
      int8 ? cuda::arguments_of<int8_t>(params) : cuda::arguments_of<uint16_t>(params);
  const int64_t tiles = a.together ? a.layers[0].tiles : a.layers[0].tiles + a.layers[1].tiles;
  const int64_t sums = a.parts == 1 ? 0 : tiles * a.parts * cuda::kMostColumns * cuda::kRows;
  return 4 * (cuda::divided(a.layers[0].tiles + a.layers[1].tiles, 64) * 64 + sums);
}

cudaError_t step_linear_cuda(const StepLinearParams& params, DType dtype, cudaStream_t stream) {
  if (params.batch < 1 || params.batch > cuda::kMostColumns) return cudaErrorInvalidValue;
  switch (dtype) {
    case DType::f16:
      return cuda::launch_for_weights<__half>(params, stream);
    case DType::bf16:
      return cuda::launch_for_weights<__nv_bfloat16>(params, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace seqfuse::ops
