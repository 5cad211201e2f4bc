// The kernels of layer_norm and, with Gate, of layer_norm_gate, which multiplies y by u and by
// dropout factors.
//
// A row is read once: a group of 32, 64, 128, 256 or 1024 threads keeps it in registers, 8 elements
// per thread, in 16-byte loads if pointers, strides and dim allow them. Each warp of the group has
// adjacent columns and draws their dropout factors itself. Two kinds of rows are reread from the
// cache instead (layer_norm_stream.cuh): those of more than 8192 elements, and of more than 256
// without 16-byte loads. Both are rare, and kernels for them compile slowly.
//
// The rows are divided among as many blocks as run at once, so that a thread reads weight and bias
// once. In the forward pass a thread prefetches its next row. The backward pass has no registers
// left for that; a block sums its part of dweight and dbias into the workspace, and a second kernel
// adds the parts in order, without atomics.
#pragma once

#include "ops/kernels/common/row_kernels.cuh"
#include "ops/kernels/common/silu.cuh"
#include "ops/kernels/step/dropout_mask.cuh"

namespace seqfuse::ops::cuda {

constexpr int kItems = 8;           // elements of a row per thread
constexpr int kSpan = 32 * kItems;  // per warp
constexpr int64_t kMaxDim = 1024 * kItems;
template <int Width>
constexpr int64_t kMaxDimOf = Width > 1 ? kMaxDim : kSpan;  // longest row in registers

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
  bool float_gradients;  // dweight and dbias are float32
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

template <int Group>
constexpr int kRows = Group < 256 ? 256 / Group : 1;  // rows that a block works on at once

template <int Group>
constexpr int kThreads = Group * kRows<Group>;

template <int Group, int Threads>
constexpr int kBlocks = Threads > kThreads<Group> ? Threads / kThreads<Group> : 1;  // blocks per SM

// A thread's work: row group of a block's rows, and in it columns j(p) to j(p) + Width.
template <int Width, int Group>
struct Place {
  const int group = threadIdx.x / Group;
  const int start = threadIdx.x % Group / 32 * kSpan;  // the warp's first column
  const int offset = threadIdx.x % 32 * Width;

  __device__ int j(int p) const { return start + offset + p * 32 * Width; }
};

// Width adjacent elements as they are in memory. With Pack, the compiler would keep each 16-bit
// element in a register; this packs two in one.
template <class T, int Width>
struct alignas(Width * sizeof(T)) Packed {
  static constexpr bool kPairs = sizeof(T) == 2 && Width > 1;
  using Word = std::conditional_t<kPairs, uint32_t, T>;
  static constexpr int kWords = Width * sizeof(T) / sizeof(Word);
  Word words[kWords];

  __device__ float operator[](int k) const {
    if constexpr (!kPairs) {
      return to_float(words[k]);
    } else if constexpr (std::is_same_v<T, __half>) {
      return to_float(__ushort_as_half(static_cast<uint16_t>(words[k / 2] >> k % 2 * 16)));
    } else {
      return __uint_as_float(k % 2 ? words[k / 2] & 0xFFFF0000 : words[k / 2] << 16);
    }
  }

  __device__ static Packed of(const float (&v)[Width]) {
    Packed result;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if constexpr (!kPairs) {
        result.words[i] = from_float<T>(v[i]);
      } else if constexpr (std::is_same_v<T, __half>) {
        const __half2 pair = __floats2half2_rn(v[2 * i], v[2 * i + 1]);
        result.words[i] = reinterpret_cast<const uint32_t&>(pair);
      } else {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(v[2 * i], v[2 * i + 1]);
        result.words[i] = reinterpret_cast<const uint32_t&>(pair);
      }
    }
    return result;
  }

  // Makes the compiler keep reused values in their 16-bit form; as floats they take twice the
  // registers.
  __device__ void stay() {
    if constexpr (kPairs) {
#pragma unroll
      for (auto& word : words) asm volatile("" : "+r"(word));
    }
  }
};

// A thread's elements of a row; dim is a multiple of Width.
template <class T, int Width>
struct Items {
  static constexpr int kPacks = kItems / Width;
  Packed<T, Width> packs[kPacks];

  __device__ float operator[](int i) const { return packs[i / Width][i % Width]; }

  // Zeros beyond the end of the row.
  template <int Group>
  __device__ void load(const T* row, const Place<Width, Group>& place, int dim) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      packs[p] = {};
      if (place.j(p) < dim) packs[p] = *reinterpret_cast<const Packed<T, Width>*>(row + place.j(p));
    }
  }

  __device__ void set(float v) {
    float all[Width];
#pragma unroll
    for (int k = 0; k < Width; ++k) all[k] = v;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) packs[p] = Packed<T, Width>::of(all);
  }

  template <int Group>
  __device__ void store(T* row, const Place<Width, Group>& place, int dim) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (place.j(p) < dim) *reinterpret_cast<Packed<T, Width>*>(row + place.j(p)) = packs[p];
    }
  }

  __device__ void stay() {
#pragma unroll
    for (auto& pack : packs) pack.stay();
  }
};

// Sums over the groups that share a row. Two sets of shared floats alternate, so one barrier is
// enough: a set is written only after all threads have passed the barrier that follows its reading.
template <int Group, int N>
class GroupSums {
 public:
  static constexpr int kWarps = Group / 32;
  using Shared = float[kRows<Group>][2][N][kWarps];

  __device__ explicit GroupSums(Shared& shared) : sets_(shared[threadIdx.x / Group]) {}

  // v = sums of v over the group, the same bits in each thread.
  __device__ void add(float (&v)[N]) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int mask = 16; mask > 0; mask /= 2) v[n] += __shfl_xor_sync(0xFFFFFFFF, v[n], mask);
    }
    if constexpr (Group > 32) {
      auto& set = sets_[turn_];
      turn_ ^= 1;
      if (threadIdx.x % 32 == 0) {
#pragma unroll
        for (int n = 0; n < N; ++n) set[n][threadIdx.x % Group / 32] = v[n];
      }
      asm volatile("bar.sync %0, %1;" ::"r"(1 + threadIdx.x / Group), "n"(Group) : "memory");
#pragma unroll
      for (int n = 0; n < N; ++n) {
        v[n] = 0;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) v[n] += set[n][w];
      }
    }
  }

 private:
  float (&sets_)[2][N][kWarps];
  int turn_ = 0;
};

// Threads per multiprocessor, given the registers they need. Without pairs an element takes a whole
// register instead of half.
template <class T, int Width, bool Gate>
constexpr int kForwardThreads = !Packed<T, Width>::kPairs ? 768
                                : Gate                    ? 1024
                                                          : 1280;
// For all types, since they share norm_backward_partials.
template <bool Gate>
constexpr int kBackwardThreads = Gate ? 768 : 1024;

template <class T, int Width, int Group, bool Gate>
__global__ void __launch_bounds__(kThreads<Group>, kBlocks<Group, kForwardThreads<T, Width, Gate>>)
    norm_forward_kernel(const __grid_constant__ NormForward params) {
  constexpr int kPacks = kItems / Width;
  using Mask = WarpMask<Gate ? kSpan : 0>;
  __shared__ typename GroupSums<Group, 1>::Shared scratch;
  __shared__ uint32_t words[kThreads<Group> / 32][Mask::kWords];
  __shared__ SharedPhilox philox;
  const Place<Width, Group> place;
  const int dim = static_cast<int>(params.dim);
  const float share = 1 / static_cast<float>(dim);
  if constexpr (Gate) philox.set(params.mask);
  Mask mask(params.mask, philox, words[threadIdx.x / 32]);
  GroupSums<Group, 1> sums(scratch);

  struct Row {
    Items<T, Width> x, u;
  };
  const auto load_row = [&](int64_t row) {
    Row loaded;
    loaded.x.load(static_cast<const T*>(params.x) + row * params.x_stride, place, dim);
    if constexpr (Gate)
      loaded.u.load(static_cast<const T*>(params.u) + row * params.u_stride, place, dim);
    return loaded;
  };
  int64_t row = int64_t{blockIdx.x} * kRows<Group> + place.group;
  const int64_t step = int64_t{gridDim.x} * kRows<Group>;
  if (row >= params.rows) return;
  Row next = load_row(row);
  Items<T, Width> weight, bias;
  weight.load(static_cast<const T*>(params.weight), place, params.weight ? dim : 0);
  if (!params.weight) weight.set(1);
  bias.load(static_cast<const T*>(params.bias), place, params.bias ? dim : 0);

  for (; row < params.rows; row += step) {
    weight.stay();
    bias.stay();
    if constexpr (Gate) mask.draw(row * dim + place.start, min(dim - place.start, kSpan));
    const Row current = next;
    if (row + step < params.rows) next = load_row(row + step);

    float v[kItems], sum[1] = {0}, squares[1] = {0};
#pragma unroll
    for (int i = 0; i < kItems; ++i) sum[0] += v[i] = current.x[i];
    sums.add(sum);
    const float mean = sum[0] * share;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      v[i] -= mean;
      if (place.j(i / Width) < dim) squares[0] += v[i] * v[i];
    }
    sums.add(squares);
    const float rstd = rsqrtf(squares[0] * share + params.eps);

    Items<T, Width> y;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      [[maybe_unused]] const uint32_t kept = Gate ? mask.kept(place.j(p) - place.start) : 0;
      float l[Width];
#pragma unroll
      for (int k = 0; k < Width; ++k) {
        const int i = p * Width + k;
        l[k] = v[i] * rstd * weight[i] + bias[i];
        if constexpr (Gate) l[k] = current.u[i] * l[k] * mask.factor(kept, k);
      }
      y.packs[p] = Packed<T, Width>::of(l);
    }
    y.store(static_cast<T*>(params.y) + row * params.y_stride, place, dim);
    if (threadIdx.x % Group == 0) {
      static_cast<float*>(params.mean)[row] = mean;
      static_cast<float*>(params.rstd)[row] = rstd;
    }
  }
}

// The groups of a block add their sums in order; part [2, dim] gets the block's total.
template <int Width, int Group>
__device__ void write_part(const float (&dweight)[kItems], const float (&dbias)[kItems],
                           const Place<Width, Group>& place, float* part, int dim) {
  constexpr int kGroups = kRows<Group>;
  if constexpr (kGroups == 1) {
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const int j = place.j(i / Width) + i % Width;
      if (j >= dim) continue;
      part[j] = dweight[i];
      part[dim + j] = dbias[i];
    }
  } else {
    __shared__ float totals[2][kItems][Group];  // keeps each thread's elements apart
    const int thread = threadIdx.x % Group;
    for (int turn = 0; turn < kGroups; ++turn) {
      if (turn == place.group) {
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
          totals[0][i][thread] = (turn > 0 ? totals[0][i][thread] : 0) + dweight[i];
          totals[1][i][thread] = (turn > 0 ? totals[1][i][thread] : 0) + dbias[i];
        }
      }
      __syncthreads();
    }
    for (int j = threadIdx.x; j < dim; j += kThreads<Group>) {
      const int item = j % kSpan / (32 * Width) * Width + j % Width;
      const int owner = j / kSpan * 32 + j / Width % 32;
      part[j] = totals[0][item][owner];
      part[dim + j] = totals[1][item][owner];
    }
  }
}

// Affine: also writes the block's part of dweight and dbias to workspace[blockIdx.x].
template <class T, int Width, int Group, bool Affine, bool Gate>
__global__ void __launch_bounds__(kThreads<Group>, kBlocks<Group, kBackwardThreads<Gate>>)
    norm_backward_kernel(const __grid_constant__ NormBackward params) {
  constexpr int kPacks = kItems / Width;
  using Mask = WarpMask<Gate ? kSpan : 0>;
  __shared__ typename GroupSums<Group, 2>::Shared scratch;
  __shared__ uint32_t words[kThreads<Group> / 32][Mask::kWords];
  __shared__ SharedPhilox philox;
  const Place<Width, Group> place;
  const int dim = static_cast<int>(params.dim);
  const float share = 1 / static_cast<float>(dim);
  if constexpr (Gate) philox.set(params.mask);
  Mask mask(params.mask, philox, words[threadIdx.x / 32]);
  GroupSums<Group, 2> group_sums(scratch);
  float dweight[kItems] = {}, dbias[kItems] = {};
  Items<T, Width> weight, bias;
  weight.load(static_cast<const T*>(params.weight), place, params.weight ? dim : 0);
  if (!params.weight) weight.set(1);
  if constexpr (Gate) bias.load(static_cast<const T*>(params.bias), place, params.bias ? dim : 0);

  const int64_t step = int64_t{gridDim.x} * kRows<Group>;
  for (int64_t row = int64_t{blockIdx.x} * kRows<Group> + place.group; row < params.rows;
       row += step) {
    weight.stay();
    if constexpr (Gate) bias.stay();
    Items<T, Width> x, dy, u, before, added;  // before: pre-activation of u; added: added to dx
    x.load(static_cast<const T*>(params.x) + row * params.x_stride, place, dim);
    dy.load(static_cast<const T*>(params.dy) + row * params.dy_stride, place, dim);
    if constexpr (Gate) {
      u.load(static_cast<const T*>(params.u) + row * params.u_stride, place, dim);
      before.load(static_cast<const T*>(params.pre_u) + row * params.pre_u_stride, place,
                  params.pre_u ? dim : 0);
    } else {
      added.load(static_cast<const T*>(params.residual) + row * params.residual_stride, place,
                 params.residual ? dim : 0);
    }
    const float mean = static_cast<const float*>(params.mean)[row];
    const float rstd = static_cast<const float*>(params.rstd)[row];

    if constexpr (Gate) mask.draw(row * dim + place.start, min(dim - place.start, kSpan));

    // The normalised row n, and the gradient g of n: 0 past the end of the row.
    float n[kItems], g[kItems], sums[2] = {0, 0};  // of g and of g n
    [[maybe_unused]] Items<T, Width> du;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      [[maybe_unused]] const uint32_t kept = Gate ? mask.kept(place.j(p) - place.start) : 0;
      [[maybe_unused]] float d[Width];
#pragma unroll
      for (int k = 0; k < Width; ++k) {
        const int i = p * Width + k;
        n[i] = (x[i] - mean) * rstd;
        float dl = dy[i];
        if constexpr (Gate) {
          dl *= mask.factor(kept, k);
          d[k] = dl * (n[i] * weight[i] + bias[i]);
          dl *= u[i];
        }
        if constexpr (Affine) {
          dweight[i] += dl * n[i];
          dbias[i] += dl;
        }
        g[i] = dl * weight[i];
        sums[0] += g[i];
        sums[1] += g[i] * n[i];
      }
      if constexpr (Gate) {
        if (params.pre_u) {
#pragma unroll
          for (int k = 0; k < Width; ++k) d[k] *= silu_gradient(before[p * Width + k]);
        }
        du.packs[p] = Packed<T, Width>::of(d);
      }
    }
    if constexpr (Gate) du.store(static_cast<T*>(params.du) + row * params.du_stride, place, dim);
    group_sums.add(sums);
    const float c0 = rstd * (sums[0] * share), c1 = rstd * (sums[1] * share);
    Items<T, Width> dx;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      float d[Width];
#pragma unroll
      for (int k = 0; k < Width; ++k) {
        const int i = p * Width + k;
        d[k] = (g[i] * rstd - c0) - n[i] * c1;
        if constexpr (!Gate) d[k] += added[i];
      }
      dx.packs[p] = Packed<T, Width>::of(d);
    }
    dx.store(static_cast<T*>(params.dx) + row * params.dx_stride, place, dim);
  }

  if constexpr (Affine)
    write_part(dweight, dbias, place, params.workspace + int64_t{blockIdx.x} * 2 * dim, dim);
}

// Calls launch.template operator()<Group>() with the smallest group that fits a row of dim <=
// MaxDim.
template <int64_t MaxDim, class Launch>
void with_group(int64_t dim, Launch&& launch) {
  if constexpr (MaxDim <= 32 * kItems) {
    launch.template operator()<32>();
  } else if (dim <= 32 * kItems) {
    launch.template operator()<32>();
  } else if (dim <= 64 * kItems) {
    launch.template operator()<64>();
  } else if (dim <= 128 * kItems) {
    launch.template operator()<128>();
  } else if (dim <= 256 * kItems) {
    launch.template operator()<256>();
  } else {
    launch.template operator()<1024>();
  }
}

}  // namespace seqfuse::ops::cuda
