// A unit of work is 128 slots of one row and head. Its keys and values are copied to shared memory; a
// thread then has the score of one slot. A block has one unit, or, where there are many, several in
// turn, copying one while it computes another. Copies begin before the kernel that makes q, k and v has
// ended; the block that has the new token's slot takes its key and value from qkv and writes them to the
// cache. The block of a head that comes last adds what was found in each unit, in order: results do not
// depend on how many units a block has.
#include "ops/kernels/decode/step_attention.h"

#include <algorithm>

#include "ops/kernels/common/device_limits.h"
#include "ops/kernels/common/rounded.cuh"
#include "ops/kernels/common/row_kernels.cuh"
#include "ops/kernels/common/sm80/ptx.cuh"
#include "ops/kernels/decode/programmatic_launch.cuh"

namespace seqfuse::ops {
namespace cuda {
namespace {

constexpr int kSlotsOfUnit = 128;  // and threads of a block
constexpr int kMaxDim = kMaxStepHeadDim;

// Dimension i of x after its rotation; angles: cosines, then sines.
template <class T>
__device__ float turned(const T* x, int i, int half, const T* angles) {
  if (i >= 2 * half) return to_float(x[i]);
  const int pair = i < half ? i : i - half;
  const float a = to_float(x[pair]), b = to_float(x[pair + half]);
  const float cosine = to_float(angles[pair]), sine = to_float(angles[half + pair]);
  return i < half ? rounded<T>(rounded<T>(a * cosine) - rounded<T>(b * sine))
                  : rounded<T>(rounded<T>(b * cosine) + rounded<T>(a * sine));
}

template <class Combine>
__device__ float over_block(float v, float* scratch, Combine&& combine) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) v = combine(v, __shfl_xor_sync(0xFFFFFFFF, v, mask));
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
  __syncthreads();
  v = scratch[0];
#pragma unroll
  for (int w = 1; w < kSlotsOfUnit / 32; ++w) v = combine(v, scratch[w]);
  return v;
}

struct Workspace {
  float* parts;   // [batch * heads, blocks, head_dim + 2]: sums, then maximum and total
  int* arrivals;  // [batch * heads]; 0 between launches
};

__host__ __device__ constexpr int64_t arrivals_words(int64_t heads) {
  return (heads + 63) / 64 * 64;
}

// Elements of a load: 16 bytes, or 8 where rows of head_dim elements do not begin at multiples of 16.
__host__ __device__ constexpr int vector_of(int64_t dim) {
  return dim % 8 == 0 ? 8 : 4;
}

// Bytes between slots in shared memory, an odd number of vectors: lanes that read vectors of neighbouring
// slots meet no bank twice.
__host__ __device__ constexpr int slot_pitch(int dim) {
  const int padded = dim * 2 + 16;
  return padded + (padded / (2 * vector_of(dim)) % 2 == 1 ? 0 : 16);
}

// Keys and values of a unit, or of two.
constexpr int shared_bytes(int dim, bool several) {
  return (several ? 4 : 2) * kSlotsOfUnit * slot_pitch(dim);
}

// Arguments of the operator, and how many units a block has.
struct Arguments {
  StepAttentionParams p;
  int units_of_block;
};

// kDim: head_dim, or 0 where it is any multiple of kVector.
template <class T, int kDim, int kVector>
__global__ void __launch_bounds__(kSlotsOfUnit)
    step_attention_kernel(const __grid_constant__ Arguments arguments) {
  using Vector = Pack<T, kVector>;
  __shared__ __align__(
      16) float query[2][kMaxDim];  // towards the newest tokens, and the first ones
  __shared__ T new_key[kMaxDim];
  __shared__ float weights[kSlotsOfUnit];
  __shared__ float scratch[2][kSlotsOfUnit / 32];
  __shared__ bool last;
  extern __shared__ __align__(128) char shared[];
  const StepAttentionParams& p = arguments.p;
  const int dim = kDim ? kDim : static_cast<int>(p.head_dim), vectors = dim / kVector;
  const int pitch = slot_pitch(dim), half = static_cast<int>(p.rotary_dims / 2);
  const int64_t row = blockIdx.y / p.heads, head = blockIdx.y;  // of all rows' heads
  const int64_t t = p.lengths[row];
  const int64_t used = t + 1 < p.slots ? t + 1 : p.slots;
  const int units = static_cast<int>((used + kSlotsOfUnit - 1) / kSlotsOfUnit);
  const int first_unit = static_cast<int>(blockIdx.x) * arguments.units_of_block;
  const int end_unit = min(first_unit + arguments.units_of_block, units);
  if (first_unit >= units) return;
  const int64_t own_slot = p.rule.slot(t);
  const StepSight sight(p.rule, t);
  T* keys = static_cast<T*>(p.keys) + head * p.slots * dim;
  T* values = static_cast<T*>(p.values) + head * p.slots * dim;

  const auto count_of = [&](int unit) {
    const int64_t left = used - int64_t{unit} * kSlotsOfUnit;
    return static_cast<int>(left < kSlotsOfUnit ? left : kSlotsOfUnit);
  };
  const auto buffer_of = [&](int unit) {
    return shared + (unit - first_unit) % 2 * 2 * kSlotsOfUnit * pitch;
  };
  // Keys, then values, each as a group of copies. Past the end: empty groups.
  const auto copy_unit = [&](int unit) {
    for (int of_values = 0; of_values < 2; ++of_values) {
      if (unit < end_unit) {
        const int64_t first = int64_t{unit} * kSlotsOfUnit;
        const T* from = (of_values ? values : keys) + first * dim;
        const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(buffer_of(unit))) +
                            of_values * kSlotsOfUnit * pitch;
        for (int i = threadIdx.x; i < count_of(unit) * vectors; i += kSlotsOfUnit) {
          const int slot = i / vectors, vector = i % vectors;
          if (first + slot == own_slot) continue;  // its key and value are written below
          const uint32_t place = to + slot * pitch + vector * kVector * 2;
          if constexpr (kVector == 8)
            sm80::copy_async(place, from + i * kVector, true);
          else
            sm80::copy_async_small<kVector * 2>(place, from + i * kVector, true);
        }
      }
      sm80::commit_copies();
    }
  };
  copy_unit(first_unit);
  wait_for_previous_kernel();
  allow_next_kernel();

  const T* q = static_cast<const T*>(p.qkv) + head * 3 * dim;
  const T *k = q + dim, *v = k + dim;
  const T* angles = static_cast<const T*>(p.angles) + row * 4 * half;
  for (int i = threadIdx.x; i < dim; i += kSlotsOfUnit) {
    query[0][i] = turned(q, i, half, angles);
    query[1][i] = turned(q, i, half, angles + 2 * half);
    new_key[i] = from_float<T>(turned(k, i, half, angles));
  }
  const int64_t heads = p.batch * p.heads;
  const Workspace workspace{static_cast<float*>(p.workspace) + arrivals_words(heads),
                            static_cast<int*>(p.workspace)};
  const int most_units = static_cast<int>((p.slots + kSlotsOfUnit - 1) / kSlotsOfUnit);
  float* parts = workspace.parts + head * most_units * (dim + 2);
  T* out = static_cast<T*>(p.out) + head * dim;

  for (int unit = first_unit; unit < end_unit; ++unit) {
    copy_unit(unit + 1);
    const int64_t first = int64_t{unit} * kSlotsOfUnit;
    const int count = count_of(unit);
    char *const shared_keys = buffer_of(unit), *const shared_values =
                                                   shared_keys + kSlotsOfUnit * pitch;
    if (const int64_t own = own_slot - first; own >= 0 && own < count) {
      for (int i = threadIdx.x; i < dim; i += kSlotsOfUnit) {  // new_key[i] is this thread's
        keys[own_slot * dim + i] = new_key[i];
        values[own_slot * dim + i] = v[i];
        reinterpret_cast<T*>(shared_keys + own * pitch)[i] = new_key[i];
        reinterpret_cast<T*>(shared_values + own * pitch)[i] = v[i];
      }
    }
    sm80::wait_copies<3>();
    __syncthreads();

    const int slot = threadIdx.x;
    float score = -INFINITY;
    if (slot < count && sight.sees(static_cast<int>(first) + slot)) {
      const float* towards = query[first + slot < p.rule.start];
      const auto* key = reinterpret_cast<const Vector*>(shared_keys + slot * pitch);
      float sums[4] = {};
#pragma unroll 5
      for (int i = 0; i < vectors; ++i) {
        const Vector part = key[i];
#pragma unroll
        for (int e = 0; e < kVector; ++e)
          sums[e % 4] = fmaf(towards[i * kVector + e], to_float(part.v[e]), sums[e % 4]);
      }
      score = ((sums[0] + sums[1]) + (sums[2] + sums[3])) * rsqrtf(static_cast<float>(dim));
    }
    const float most = over_block(score, scratch[0], [](float a, float b) { return fmaxf(a, b); });
    const float weight = score == -INFINITY ? 0 : expf(score - most);
    weights[slot] = weight;
    sm80::wait_copies<2>();
    // Its barrier publishes weights and values too.
    const float total = over_block(weight, scratch[1], [](float a, float b) { return a + b; });

    // Thread (group, vector) adds one vector of every groups-th slot.
    const int groups = kSlotsOfUnit / vectors, group = slot / vectors, vector = slot % vectors;
    float sums[kVector] = {};
    float* value_sums = reinterpret_cast<float*>(shared_keys);  // all have read the keys
    if (group < groups) {
#pragma unroll 4
      for (int i = group; i < count; i += groups) {
        const float w = weights[i];
        const Vector part = reinterpret_cast<const Vector*>(shared_values + i * pitch)[vector];
#pragma unroll
        for (int e = 0; e < kVector; ++e)  // a slot that is not seen may hold anything
          sums[e] = fmaf(w, w == 0 ? 0 : to_float(part.v[e]), sums[e]);
      }
#pragma unroll
      for (int e = 0; e < kVector; ++e) value_sums[group * dim + vector * kVector + e] = sums[e];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < dim; i += kSlotsOfUnit) {
      float sum = 0;
#pragma unroll 4
      for (int g = 0; g < groups; ++g) sum += value_sums[g * dim + i];
      if (units == 1) {
        out[i] = from_float<T>(sum / total);
      } else {
        __stcg(parts + unit * (dim + 2) + i, sum);
      }
    }
    if (threadIdx.x == 0 && units > 1) {
      __stcg(parts + unit * (dim + 2) + dim, most);
      __stcg(parts + unit * (dim + 2) + dim + 1, total);
    }
    __syncthreads();  // the buffer is free
  }
  if (units == 1) return;

  __threadfence();
  __syncthreads();
  const int mine = end_unit - first_unit;
  if (threadIdx.x == 0) last = atomicAdd(workspace.arrivals + head, mine) + mine == units;
  __syncthreads();
  if (!last) return;
  __threadfence();
  float highest = -INFINITY;
  for (int u = 0; u < units; ++u) highest = fmaxf(highest, __ldcg(parts + u * (dim + 2) + dim));
  for (int i = threadIdx.x; i < dim; i += kSlotsOfUnit) {
    float sum = 0, all = 0;
#pragma unroll 4
    for (int u = 0; u < units; ++u) {
      const float* part = parts + u * (dim + 2);
      const float part_most = __ldcg(part + dim);
      const float factor = part_most == -INFINITY ? 0 : expf(part_most - highest);
      sum += factor * __ldcg(part + i);
      all += factor * __ldcg(part + dim + 1);
    }
    out[i] = from_float<T>(sum / all);
  }
  if (threadIdx.x == 0) workspace.arrivals[head] = 0;
}

template <class T>
cudaError_t launch_attention(const StepAttentionParams& params, cudaStream_t stream) {
  const int units = static_cast<int>(divide_up(params.slots, kSlotsOfUnit));
  const int64_t heads = params.batch * params.heads;
  // One unit for each block; where there are many, as many blocks as run at a time, two on an SM, with
  // equal shares.
  const int64_t all = heads * units;
  int units_of_block = 1;
  if (all > 8 * multiprocessors()) {
    const auto most = std::clamp<int64_t>(all / (2 * multiprocessors()), 1, units);
    units_of_block = static_cast<int>(divide_up(units, divide_up(units, most)));
  }
  int most_bytes = 0;
  if (const cudaError_t error = shared_bytes_of_block(most_bytes)) return error;
  if (shared_bytes(static_cast<int>(params.head_dim), true) > most_bytes) units_of_block = 1;
  const dim3 grid(divide_up(units, units_of_block), static_cast<unsigned>(heads));
  const int bytes = shared_bytes(static_cast<int>(params.head_dim), units_of_block > 1);
  const auto run = [&](auto kernel) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    return launch_programmatic(kernel,
                               {.grid = grid,
                                .block = dim3(kSlotsOfUnit),
                                .shared_bytes = static_cast<size_t>(bytes),
                                .early = params.early},
                               stream, Arguments{params, units_of_block});
  };
  switch (params.head_dim) {
    case 64:
      return run(step_attention_kernel<T, 64, 8>);
    case 80:
      return run(step_attention_kernel<T, 80, 8>);
    case 128:
      return run(step_attention_kernel<T, 128, 8>);
    default:
      return vector_of(params.head_dim) == 8 ? run(step_attention_kernel<T, 0, 8>)
                                             : run(step_attention_kernel<T, 0, 4>);
  }
}

}  // namespace
}  // namespace cuda

bool step_attention_fits(int64_t head_dim) {
  constexpr int kStatic = 4096;  // bytes of shared memory besides, at most
  int most_bytes = 0;
  return shared_bytes_of_block(most_bytes) == cudaSuccess &&
         cuda::shared_bytes(static_cast<int>(head_dim), false) + kStatic <= most_bytes;
}

int64_t step_attention_workspace_bytes(const StepAttentionParams& params) {
  const int64_t heads = params.batch * params.heads;
  const int64_t blocks = (params.slots + cuda::kSlotsOfUnit - 1) / cuda::kSlotsOfUnit;
  return 4 * (cuda::arrivals_words(heads) + heads * blocks * (params.head_dim + 2));
}

cudaError_t step_attention_cuda(const StepAttentionParams& params, DType dtype,
                                cudaStream_t stream) {
  if (params.head_dim % kStepHeadDimGrain != 0 || params.head_dim > cuda::kMaxDim ||
      !step_attention_fits(params.head_dim))
    return cudaErrorInvalidValue;
  switch (dtype) {
    case DType::f16:
      return cuda::launch_attention<__half>(params, stream);
    case DType::bf16:
      return cuda::launch_attention<__nv_bfloat16>(params, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace seqfuse::ops
