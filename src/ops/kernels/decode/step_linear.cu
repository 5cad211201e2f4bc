// A block has neighbouring outputs of one linear layer, or of both that are added; blocks have equal
// shares of the weights. Filling warps stream the weights through a ring in shared memory, in stages of 8
// rows by a chunk of k; they begin while the kernel before this one still runs, for weights do not
// depend on it. Each of the other 8 warps multiplies its part of the chunk with x, which it keeps in
// registers for all rows of a group, and adds to sums of its own in shared memory. At a group's end the
// sums of the warps are added, in order, and become outputs.
//
// Between two kernels no weights stream but those that the ring holds. So what a block does after its
// wait is short: constants are in the cache before, and x of the next chunk is loaded early.
#include "ops/kernels/decode/step_linear.h"

#include <algorithm>

#include "ops/kernels/common/device_limits.h"
#include "ops/kernels/common/rounded.cuh"
#include "ops/kernels/decode/programmatic_launch.cuh"
#include "ops/kernels/decode/weight_products.cuh"
#include "ops/kernels/decode/weight_ring.cuh"

namespace seqfuse::ops {
namespace cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;  // the warps that multiply, and their threads
constexpr int kMostStages = 6;
// Stages of the ring: few enough that blocks of attention run beside.
constexpr int stages_for(int batch) {
  return batch <= 8 ? kMostStages : 4;
}
constexpr int kMostColumns = 16;
constexpr int kMostSums = 72 * 1024;  // bytes of sums

template <class W>
constexpr int kLoad = 16 / sizeof(W);  // elements of a row that a lane loads at a time
template <class W>
constexpr int kStepK = 4 * kLoad<W>;  // and a warp
template <class W>
constexpr int kChunk = kRowBytes / sizeof(W);      // elements of a row in a stage
constexpr int kLoads = kRowBytes / (kWarps * 64);  // 16-byte loads of a lane in each stage

struct Layer {
  const char* weight;
  const float* scales;
  const void *bias, *x;
  void* y;
  int n, k;
  LinearActivation activation;
};

struct Arguments {
  Layer layers[2];
  int count;
  bool together;        // the layers are added
  int blocks_of_first;  // blocks of layer 0; the others have layer 1. Together: all
  int group;            // tiles of kRowsOfStage outputs whose sums are kept at a time
  int stages;
  int shared_bytes;
  int batch;
  const void* residual;
};

// A chunk of k of a linear layer.
struct Chunk {
  int layer, k;
};

// The outputs of a block: rows of a layer, or of two that are added.
struct Share {
  int layer, begin, end, layers_end;
};

__device__ Share share_of(const Arguments& a) {
  const int block = blockIdx.x, layer = block >= a.blocks_of_first;
  const int first = layer ? a.blocks_of_first : 0;
  const int blocks = layer ? gridDim.x - first : a.blocks_of_first;
  const auto row = [&](int64_t i) { return static_cast<int>(i * a.layers[layer].n / blocks); };
  return {layer, row(block - first), row(block - first + 1), a.together ? a.count : layer + 1};
}

// Calls, for each group of rows and each chunk of k, on_chunk(chunk, the next chunk), then
// on_tile(chunk, row, rows, slot of its sums) for each tile; at the group's end on_group(first row,
// end row).
template <class W, class OnChunk, class OnTile, class OnGroup>
__device__ __forceinline__ void walk(const Arguments& a, const Share& share, OnChunk&& on_chunk,
                                     OnTile&& on_tile, OnGroup&& on_group) {
  for (int row = share.begin; row < share.end; row += a.group * kRowsOfStage) {
    const int stop = min(row + a.group * kRowsOfStage, share.end);
    for (Chunk chunk{share.layer, 0}; chunk.layer < share.layers_end;) {
      Chunk next{chunk.layer, chunk.k + kChunk<W>};
      if (next.k >= a.layers[next.layer].k) next = {next.layer + 1, 0};
      on_chunk(chunk, next.layer < share.layers_end ? next : Chunk{share.layer, 0});
      int slot = (chunk.layer - share.layer) * a.group;
      for (int tile = row; tile < stop; tile += kRowsOfStage)
        on_tile(chunk, tile, min(kRowsOfStage, stop - tile), slot++);
      chunk = next;
    }
    on_group(row, stop);
  }
}

__device__ void wait_for_warps() {
  sm80::sync_threads(1, kThreads);
}

// Brings biases and scales, which no kernel writes, into the second-level cache.
template <class T>
__device__ void prefetch_constants(const Arguments& a, const Share& share) {
  const auto prefetch = [](const auto* from) {
    asm volatile("prefetch.global.L2 [%0];\n" ::"l"(from));
  };
  for (int row = share.begin + threadIdx.x; row < share.end; row += kThreads) {
    for (int i = share.layer; i < share.layers_end; ++i) {
      if (a.layers[i].bias) prefetch(static_cast<const T*>(a.layers[i].bias) + row);
      if (a.layers[i].scales) prefetch(a.layers[i].scales + row);
    }
  }
}

// The place in a chunk of the lane's first element of load i.
template <class W>
__device__ __forceinline__ int place_in_chunk(int i) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  return (i * kWarps + warp) * kStepK<W> + lane % 4 * kLoad<W>;
}

// The lane's elements of x for a chunk, as words of two.
template <class W, int kColumns>
using Operand = uint32_t[kLoads][kColumns / 8][8 / sizeof(W)];

// Zeros outside of x.
template <class T, class W, int kColumns>
__device__ __forceinline__ void load_x(const Arguments& a, const Chunk& chunk,
                                       Operand<W, kColumns>& x) {
  const Layer& layer = a.layers[chunk.layer];
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const int k = chunk.k + place_in_chunk<W>(i);
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
      const int column = n * 8 + lane / 4;
#pragma unroll
      for (int part = 0; part < kLoad<W> / 8; ++part) {
        uint4 words{};
        if (k < layer.k && column < a.batch)
          words = *reinterpret_cast<const uint4*>(static_cast<const T*>(layer.x) +
                                                  int64_t{column} * layer.k + k + part * 8);
        x[i][n][part * 4 + 0] = words.x;
        x[i][n][part * 4 + 1] = words.y;
        x[i][n][part * 4 + 2] = words.z;
        x[i][n][part * 4 + 3] = words.w;
      }
    }
  }
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

// The index of the sum of one warp for the first row of a slot and one column.
__device__ __forceinline__ int sum_at(const Arguments& a, int slot, int warp, int column) {
  return ((slot * kWarps + warp) * a.batch + column) * kRowsOfStage;
}

// Writes y for rows [first, end) of a layer.
template <class T>
__device__ void write_group(const Arguments& a, int layer_index, int first, int end,
                            const float* sums) {
  const Layer& layer = a.layers[layer_index];
  const int rows = end - first;
  for (int i = threadIdx.x; i < rows * a.batch; i += kThreads) {
    const int column = i / rows, within = i - column * rows, row = first + within;
    const auto total = [&](int slot) {
      float sum = 0;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp)
        sum += sums[sum_at(a, slot + within / kRowsOfStage, warp, column) + within % kRowsOfStage];
      return sum;
    };
    float y = linear_of<T>(layer, total(0), row);
    const int64_t at = int64_t{column} * layer.n + row;
    if (a.together) {
      y = rounded<T>(y);
      if (a.count == 2)
        y = rounded<T>(rounded<T>(linear_of<T>(a.layers[1], total(a.group), row)) + y);
      y += to_float(static_cast<const T*>(a.residual)[at]);
    }
    static_cast<T*>(layer.y)[at] = from_float<T>(y);
  }
}

template <class T, class W, int kColumns, bool kBulk>
__global__ void __launch_bounds__(kThreads + 32 * kFillingWarps<kBulk>, 1)
    step_linear_kernel(const __grid_constant__ Arguments a) {
#if __CUDA_ARCH__ < 900
  if constexpr (kBulk) return;
#endif
  extern __shared__ __align__(128) char shared[];
  __shared__ __align__(8) char barriers[barrier_bytes(kMostStages)];
  float* sums = reinterpret_cast<float*>(shared + a.stages * kStageBytes);
  WeightRing<kBulk> ring(shared, barriers, a.stages);
  const Share share = share_of(a);
  if (threadIdx.x == 0) ring.init(kWarps);
  __syncthreads();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  if (warp >= kWarps) {
    const auto fill = [&](const Chunk& chunk, int row, int rows, int) {
      const Layer& layer = a.layers[chunk.layer];
      const int64_t pitch = int64_t{layer.k} * sizeof(W);
      ring.fill(warp - kWarps, layer.weight + row * pitch + chunk.k * sizeof(W), pitch, rows,
                min(kChunk<W>, layer.k - chunk.k) * static_cast<int>(sizeof(W)));
    };
    walk<W>(a, share, [](const Chunk&, const Chunk&) {}, fill, [](int, int) {});
    return;
  }

  prefetch_constants<T>(a, share);
  wait_for_previous_kernel();
  allow_next_kernel();

  // With 16-bit weights there are registers to load x of the next chunk while this one's is used.
  constexpr bool kEarly = sizeof(W) == 2;
  Operand<W, kColumns> x, next_x;
  load_x<T, W, kColumns>(a, {share.layer, 0}, kEarly ? next_x : x);

  const auto begin_chunk = [&](const Chunk& chunk, const Chunk& next) {
    if constexpr (kEarly) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i)
#pragma unroll
        for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
          for (int word = 0; word < static_cast<int>(8 / sizeof(W)); ++word)
            x[i][n][word] = next_x[i][n][word];
      load_x<T, W, kColumns>(a, next, next_x);
    } else {
      load_x<T, W, kColumns>(a, chunk, x);
    }
  };
  const auto multiply = [&](const Chunk& chunk, int, int, int slot) {
    uint4 weights[kLoads];
    ring.template take<kWarps * 64>(warp * 64 + lane % 4 * 16, weights);
    float c[kParts<W>][4] = {};
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      // Past the end of a row the stage still holds earlier weights, which times 0 may be NaN.
      if (chunk.k + place_in_chunk<W>(i) >= a.layers[chunk.layer].k) weights[i] = {};
      multiply_load<T, W, kColumns>(c, weights[i], x[i]);
    }
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
      const int column = n * 8 + lane / 4;
      if (column >= a.batch) continue;
      auto& sum = reinterpret_cast<float2&>(sums[sum_at(a, slot, warp, column) + lane % 4 * 2]);
      const float2 before = chunk.k == 0 ? float2{} : sum;
      const auto added = [&](int i) {
        return kParts<W> == 2 ? c[0][i] + c[1][i]
                              : (c[0][i] + c[1][i]) + (c[2 % kParts<W>][i] + c[3 % kParts<W>][i]);
      };
      sum = {before.x + added(2 * n), before.y + added(2 * n + 1)};
    }
  };
  const auto write = [&](int first, int end) {
    wait_for_warps();
    write_group<T>(a, share.layer, first, end, sums);
    wait_for_warps();
  };
  walk<W>(a, share, begin_chunk, multiply, write);
}

// most_bytes: shared memory of a block, at most.
template <class W>
Arguments arguments_of(const StepLinearParams& params, int blocks, int most_bytes) {
  Arguments a{};
  int64_t weights[2] = {};
  for (int i = 0; i < params.count; ++i) {
    const StepLinear& linear = params.linear[i];
    a.layers[i] = {.weight = static_cast<const char*>(linear.weight),
                   .scales = linear.scales,
                   .bias = linear.bias,
                   .x = linear.x,
                   .y = linear.y,
                   .n = static_cast<int>(linear.n),
                   .k = static_cast<int>(linear.k),
                   .activation = linear.activation};
    weights[i] = linear.n * linear.k;
  }
  a.count = params.count;
  a.together = params.residual != nullptr;
  a.blocks_of_first = blocks;
  if (a.count == 2 && !a.together)
    a.blocks_of_first =
        std::clamp(static_cast<int>((blocks * weights[0] + (weights[0] + weights[1]) / 2) /
                                    (weights[0] + weights[1])),
                   1, blocks - 1);
  a.batch = static_cast<int>(params.batch);
  a.residual = params.residual;

  // Sums of all tiles of a block, or of as many as fit.
  int tiles = 0;
  for (int i = 0; i < (a.together ? 1 : a.count); ++i) {
    const int of_layer = i ? blocks - a.blocks_of_first : a.blocks_of_first;
    const int rows = (a.layers[i].n + of_layer - 1) / of_layer;
    tiles = std::max(tiles, (rows + kRowsOfStage - 1) / kRowsOfStage);
  }
  const int bytes_of_tile = kRowsOfStage * kWarps * a.batch * 4 * (a.together ? a.count : 1);
  a.group = std::clamp(kMostSums / bytes_of_tile, 1, tiles);
  const int sums = a.group * bytes_of_tile;
  constexpr int kDeclared = 2048;  // bytes that the kernel declares, at most
  a.stages = std::clamp((most_bytes - kDeclared - sums) / kStageBytes, 1, stages_for(a.batch));
  a.shared_bytes = a.stages * kStageBytes + sums;
  return a;
}

template <class T, class W, int kColumns, bool kBulk>
cudaError_t launch(const StepLinearParams& params, cudaStream_t stream) {
  int most_bytes = 0;
  if (const cudaError_t error = shared_bytes_of_block(most_bytes)) return error;
  int64_t rows = params.linear[0].n;
  if (params.count == 2 && !params.residual) rows += params.linear[1].n;
  // A tile for each block at least, and a block for each layer.
  const int blocks =
      static_cast<int>(std::clamp<int64_t>(rows / kRowsOfStage, params.count, multiprocessors()));
  const Arguments a = arguments_of<W>(params, blocks, most_bytes);
  const auto kernel = step_linear_kernel<T, W, kColumns, kBulk>;
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, a.shared_bytes))
    return error;
  return launch_programmatic(kernel,
                             {.grid = dim3(blocks),
                              .block = dim3(kThreads + 32 * kFillingWarps<kBulk>),
                              .shared_bytes = static_cast<size_t>(a.shared_bytes),
                              .early = params.early},
                             stream, a);
}

template <class T, class W>
cudaError_t launch_for_batch(const StepLinearParams& params, cudaStream_t stream) {
  bool bulk = false;
  if (const cudaError_t error = has_dependent_launches(bulk)) return error;
  if (params.batch <= 8)
    return bulk ? launch<T, W, 8, true>(params, stream) : launch<T, W, 8, false>(params, stream);
  return bulk ? launch<T, W, 16, true>(params, stream) : launch<T, W, 16, false>(params, stream);
}

template <class T>
cudaError_t launch_for_weights(const StepLinearParams& params, cudaStream_t stream) {
  return params.linear[0].scales ? launch_for_batch<T, int8_t>(params, stream)
                                 : launch_for_batch<T, T>(params, stream);
}

}  // namespace
}  // namespace cuda

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
