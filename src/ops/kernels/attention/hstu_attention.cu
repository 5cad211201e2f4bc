// Launches the attention kernels: checks arguments, divides the workspace, chooses kernels.
#include "ops/kernels/attention/hstu_attention.h"

#include <algorithm>
#include <limits>

#include "ops/kernels/attention/common/bias_sums.cuh"
#include "ops/kernels/attention/common/prepare.cuh"
#include "ops/kernels/attention/common/time_edges.h"
#include "ops/kernels/attention/common/time_kernels.cuh"
#include "ops/kernels/attention/common/totals.cuh"
#include "ops/kernels/attention/launch.h"

namespace seqfuse::ops {
namespace {

using namespace attention;

// Bytes for the time-bias tables and both time arrays, including alignment.
int64_t time_bytes(const HstuAttentionParams& p) {
  return p.time_bias ? int64_t{sizeof(TimeTables)} + p.total_keys * 16 + 3 * 256 : 0;
}

// A view with the widest moves that the addresses and strides allow.
HeadsView view_of(const JaggedHeads& t, int64_t head_dim) {
  const auto all_multiples = [&](int64_t elements) {
    return reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(2 * elements) == 0 &&
           t.row_stride % elements == 0 && t.head_stride % elements == 0 &&
           head_dim % elements == 0;
  };
  const int grain = all_multiples(8) ? 16 : all_multiples(2) ? 4 : 2;
  return {static_cast<char*>(t.data), t.row_stride * 2, t.head_stride * 2, grain};
}

int bounded(int64_t value) {
  return static_cast<int>(std::min<int64_t>(value, 1 << 30));
}

Arguments arguments_of(const HstuAttentionParams& p) {
  Arguments a{};
  a.q = view_of(p.q, p.head_dim);
  a.k = view_of(p.k, p.head_dim);
  a.v = view_of(p.v, p.head_dim);
  a.out = view_of(p.out, p.head_dim);
  a.mask = kernel_mask(p.mask);
  if (p.position_bias) {
    a.bias.reach = static_cast<int>((p.position_bias_size - 1) / 2);
    a.bias.position = static_cast<const float*>(p.position_bias) + a.bias.reach;
  }
  a.heads = static_cast<int>(p.heads);
  a.head_dim = static_cast<int>(p.head_dim);
  a.alpha = static_cast<float>(p.alpha);
  a.inverse_scale = static_cast<float>(1.0 / static_cast<double>(p.scaling_seqlen));
  return a;
}

// Hands out pieces of the workspace in order.
class Workspace {
 public:
  explicit Workspace(void* memory) : at_(static_cast<char*>(memory)) {}
  template <class T>
  T* take(int64_t bytes) {
    char* here = at_;
    at_ += (bytes + 255) / 256 * 256;
    return reinterpret_cast<T*>(here);
  }

 private:
  char* at_;
};

ListArguments list_arguments(const HstuAttentionParams& p, int64_t tile_rows, bool of_keys,
                             WorkList* list) {
  // Each tile of the list reads two 16-bit tensors. Fastest on an H200 (50 MB L2): small groups with
  // the last two merged for query tiles; large ones for key tiles, whose kernel also adds to dq.
  const int64_t group_bytes = of_keys ? 32 << 20 : 16 << 20;
  const int64_t rows = of_keys ? p.total_queries : p.total_keys;
  const int64_t bytes = rows * p.heads * p.head_dim * 4;
  const int groups = static_cast<int>(
      std::clamp<int64_t>((bytes + group_bytes - 1) / group_bytes, 1, kOrderSlice));
  return {.q_offsets = p.q_offsets,
          .k_offsets = p.k_offsets,
          .int32_offsets = p.int32_offsets,
          .contexts = p.num_contexts,
          .targets = p.num_targets,
          .batch = static_cast<int>(p.batch),
          .total_queries = static_cast<int>(p.total_queries),
          .total_keys = static_cast<int>(p.total_keys),
          .tile_rows = static_cast<int>(tile_rows),
          .max_seqlen = bounded(p.max_seqlen),
          .of_keys = of_keys,
          .causal = p.mask.causal,
          .groups = groups,
          .last_group = of_keys ? groups - 1 : std::max(groups - 2, 0),
          .list = list};
}

// Builds the tables for time biases, if there are any.
cudaError_t make_times(const HstuAttentionParams& p, Workspace& workspace, Arguments& a,
                       cudaStream_t stream) {
  if (!p.time_bias || p.total_keys == 0) return cudaSuccess;
  auto* tables = workspace.take<TimeTables>(sizeof(TimeTables));
  auto* times = workspace.take<double>(p.total_keys * 8);
  auto* times_after = workspace.take<double>(p.total_keys * 8);
  time_tables_kernel<<<1, kTimeCells, 0, stream>>>(
      time_edges(), static_cast<const float*>(p.time_bias), bounded(p.num_time_buckets), tables);
  const dim3 grid(static_cast<unsigned>((p.max_seqlen + kElementThreads - 1) / kElementThreads),
                  static_cast<unsigned>(p.batch));
  times_kernel<<<grid, kElementThreads, 0, stream>>>(
      list_arguments(p, 1, true, nullptr), p.timestamps, p.request_times, times, times_after);
  a.bias.tables = tables;
  a.bias.times = times;
  a.bias.times_after = times_after;
  return cudaGetLastError();
}

int width_of(const HstuAttentionParams& p) {
  return tile_width(static_cast<int>(p.head_dim));
}

Problem problem_of(const HstuAttentionParams& p, Pass pass, const Arguments& a) {
  const bool backward = pass != Pass::forward;
  return {.pass = pass,
          .head_dim = static_cast<int>(p.head_dim),
          .biased = a.bias.position || a.bias.tables,
          .aligned_inputs = a.q.grain == 16 && a.k.grain == 16 && a.v.grain == 16 &&
                            (!backward || a.dout.grain == 16),
          .aligned_outputs = backward || a.out.grain == 16};
}

// Chooses and logs the kernel for a pass.
const Variant& choose(const HstuAttentionParams& p, Pass pass, const Arguments& a,
                      const Device& device, DType dtype) {
  const Problem problem = problem_of(p, pass, a);
  const Variant& variant = choose_variant(problem, device);
  log_choice(problem, variant.config, dtype);
  return variant;
}

// Upper bound on the number of tiles of tile_rows rows, times heads.
int64_t most_pieces(const HstuAttentionParams& p, int64_t rows, int tile_rows) {
  return (rows / tile_rows + p.batch) * p.heads;
}

// Sized for the tiles of any device.
int64_t forward_list_bytes(const HstuAttentionParams& p) {
  return work_list_bytes(p.total_queries, p.batch,
                         least_tile_rows(Pass::forward, static_cast<int>(p.head_dim)));
}

}  // namespace

cudaError_t hstu_attention_check_cuda(const HstuAttentionParams& p, cudaStream_t stream) {
  if (p.batch == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((p.batch + kElementThreads - 1) / kElementThreads);
  check_sequences_kernel<<<blocks, kElementThreads, 0, stream>>>(
      list_arguments(p, 1, true, nullptr));
  return cudaGetLastError();
}

int64_t hstu_attention_forward_workspace_bytes(const HstuAttentionParams& p) {
  return time_bytes(p) + forward_list_bytes(p);
}

cudaError_t hstu_attention_forward_cuda(const HstuAttentionParams& p, DType dtype,
                                        cudaStream_t stream) {
  if (!hstu_attention_cuda_takes(p.batch, p.head_dim, dtype)) return cudaErrorInvalidValue;
  if (p.total_queries == 0) return hstu_attention_check_cuda(p, stream);
  Arguments a = arguments_of(p);
  Workspace workspace(p.workspace);
  cudaError_t error = make_times(p, workspace, a, stream);
  if (error != cudaSuccess) return error;
  Device device;
  error = current_device(device);
  if (error != cudaSuccess) return error;
  const Variant& variant = choose(p, Pass::forward, a, device, dtype);
  const int tile_queries = variant.config.tile_queries;
  a.list = workspace.take<WorkList>(forward_list_bytes(p));
  forward_list_kernel<<<static_cast<unsigned>(list_slices(p.batch)), kPrepareThreads, 0, stream>>>(
      list_arguments(p, tile_queries, false, a.list));
  error = cudaGetLastError();
  if (error != cudaSuccess) return error;
  return launch(variant, dtype, a, most_pieces(p, p.total_queries, tile_queries), stream,
                /*early=*/true);
}

namespace {

// Entries of the mask table and of dq's sums.
int64_t query_tiles(const HstuAttentionParams& p) {
  return p.total_queries / kBackwardQueries + p.batch;
}
// A multiple of the workspace's alignment, so no gap follows.
int64_t dq_sums_bytes(const HstuAttentionParams& p) {
  static_assert(kBackwardQueries * sizeof(float) % 256 == 0);
  return query_tiles(p) * p.heads * kBackwardQueries * width_of(p) * 4;
}

bool wants_bias_gradient(const HstuAttentionBackwardParams& params) {
  return params.d_position_bias || params.d_time_bias;
}
int64_t bias_row(const HstuAttentionParams& p) {
  return p.max_seqlen + kBiasGradientKeys + kBuckets;
}
int64_t key_tiles(const HstuAttentionParams& p) {
  return p.total_keys / kBiasGradientKeys + p.batch;
}
int64_t bias_sums_bytes(const HstuAttentionBackwardParams& params) {
  const HstuAttentionParams& p = params.forward;
  return wants_bias_gradient(params) ? key_tiles(p) * bias_row(p) * 4 : 0;
}

bool wants_totals(const HstuAttentionBackwardParams& params) {
  return params.total_dq || params.total_dk || params.total_dv;
}
int64_t totals_bytes(const HstuAttentionBackwardParams& params) {
  const HstuAttentionParams& p = params.forward;
  constexpr int64_t kBytes = 3 * kTotals * sizeof(float);
  return wants_totals(params) ? kBytes * p.heads * p.head_dim : 0;
}
void take_totals(const HstuAttentionBackwardParams& params, Workspace& workspace, Arguments& a) {
  const int64_t width = params.forward.heads * params.forward.head_dim;
  auto* totals = workspace.take<float>(totals_bytes(params));
  for (GradientView* gradient : {&a.dq, &a.dk, &a.dv}) {
    gradient->totals = totals;
    gradient->totals_row = static_cast<int>(width);
    totals += kTotals * width;
  }
}
cudaError_t add_totals(const HstuAttentionBackwardParams& params, const Arguments& a,
                       cudaStream_t stream) {
  const int width = a.dq.totals_row;
  const dim3 grid(static_cast<unsigned>((width + kElementThreads - 1) / kElementThreads), 3);
  add_totals_kernel<<<grid, kElementThreads, 0, stream>>>(
      a.dq.totals, width, {{params.total_dq, params.total_dk, params.total_dv}});
  return cudaGetLastError();
}

// Size of any tile list of the backward pass, on any device.
int64_t backward_list_bytes(const HstuAttentionParams& p) {
  const auto least = [&](Pass pass) { return least_tile_rows(pass, static_cast<int>(p.head_dim)); };
  const int rows =
      std::min({least(Pass::backward), least(Pass::backward_queries), least(Pass::bias_gradient)});
  return work_list_bytes(std::max(p.total_keys, p.total_queries), p.batch, rows);
}

cudaError_t prepare(const BackwardPreparation& p, cudaStream_t stream) {
  const int64_t blocks = p.list_blocks() + p.mask_blocks() + p.zero_blocks();
  if (blocks > std::numeric_limits<int>::max()) return cudaErrorInvalidValue;
  backward_prepare_kernel<<<static_cast<unsigned>(blocks), kPrepareThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

// Without keys, only the gradients that are not per token need writing.
cudaError_t zero_small_gradients(const HstuAttentionBackwardParams& params, cudaStream_t stream) {
  const HstuAttentionParams& p = params.forward;
  cudaError_t error = cudaSuccess;
  const auto zero = [&](void* to, int64_t floats) {
    if (error == cudaSuccess && to)
      error = cudaMemsetAsync(to, 0, static_cast<size_t>(floats) * sizeof(float), stream);
  };
  zero(params.d_position_bias, p.position_bias_size);
  zero(params.d_time_bias, p.num_time_buckets);
  for (float* total : {params.total_dq, params.total_dk, params.total_dv})
    zero(total, p.heads * p.head_dim);
  return error;
}

cudaError_t run_bias_gradient(const HstuAttentionBackwardParams& params, const Variant& variant,
                              const Arguments& a, DType dtype, cudaStream_t stream) {
  const HstuAttentionParams& p = params.forward;
  const cudaError_t error = launch(variant, dtype, a, key_tiles(p), stream);
  if (error != cudaSuccess) return error;
  const BiasSums sums{.rows = a.bias_sums,
                      .row = a.bias_row,
                      .max_seqlen = a.max_seqlen,
                      .scale = a.inverse_scale / kScoreGradientFactor,
                      .d_position = static_cast<float*>(params.d_position_bias),
                      .reach = a.bias.reach,
                      .d_time = static_cast<float*>(params.d_time_bias),
                      .buckets = params.d_time_bias ? bounded(p.num_time_buckets) : 0};
  const int64_t weights = (params.d_position_bias ? p.position_bias_size : 0) + sums.buckets;
  const auto blocks = static_cast<unsigned>((weights + kSumColumns - 1) / kSumColumns);
  bias_sums_kernel<<<blocks, kSumColumns * kSumParts, 0, stream>>>(
      list_arguments(p, variant.config.tile_keys, true, nullptr), sums);
  return cudaGetLastError();
}

}  // namespace

int64_t hstu_attention_backward_workspace_bytes(const HstuAttentionBackwardParams& params) {
  const HstuAttentionParams& p = params.forward;
  return time_bytes(p) + kMostLists * backward_list_bytes(p) +
         query_tiles(p) * static_cast<int64_t>(sizeof(TileMask)) + bias_sums_bytes(params) +
         (params.deterministic ? 0 : dq_sums_bytes(p)) + totals_bytes(params) + 4 * 256;
}

cudaError_t hstu_attention_backward_cuda(const HstuAttentionBackwardParams& params, DType dtype,
                                         cudaStream_t stream) {
  const HstuAttentionParams& p = params.forward;
  if (!hstu_attention_cuda_takes(p.batch, p.head_dim, dtype)) return cudaErrorInvalidValue;
  if (params.deterministic && wants_totals(params)) return cudaErrorInvalidValue;
  if (p.total_keys == 0) {
    const cudaError_t error = hstu_attention_check_cuda(p, stream);
    return error == cudaSuccess ? zero_small_gradients(params, stream) : error;
  }
  Arguments a = arguments_of(p);
  a.dout = view_of(params.dout, p.head_dim);
  const auto gradient_of = [&](const JaggedHeads& to, const JaggedHeads& pre) {
    return GradientView{view_of(to, p.head_dim), view_of(pre, p.head_dim), nullptr, 0};
  };
  a.dq = gradient_of(params.dq, params.pre_q);
  a.dk = gradient_of(params.dk, params.pre_k);
  a.dv = gradient_of(params.dv, params.pre_v);
  a.q_offsets = p.q_offsets;
  a.int32_offsets = p.int32_offsets;
  a.batch = static_cast<int>(p.batch);
  a.max_seqlen = static_cast<int>(p.max_seqlen);
  Workspace workspace(p.workspace);
  cudaError_t error = make_times(p, workspace, a, stream);
  if (error != cudaSuccess) return error;
  BackwardPreparation preparation{};
  const auto add_list = [&](int64_t tile_rows, bool of_keys) {
    auto* list = workspace.take<WorkList>(backward_list_bytes(p));
    preparation.lists[preparation.list_count++] = list_arguments(p, tile_rows, of_keys, list);
    return list;
  };
  Device device;
  error = current_device(device);
  if (error != cudaSuccess) return error;
  const Variant& of_keys = choose(p, Pass::backward, a, device, dtype);
  auto* const keys_list = add_list(of_keys.config.tile_keys, true);
  const Variant* const of_biases =
      wants_bias_gradient(params) ? &choose(p, Pass::bias_gradient, a, device, dtype) : nullptr;
  auto* const bias_list = of_biases ? add_list(of_biases->config.tile_keys, true) : nullptr;
  const Variant* const of_queries =
      params.deterministic ? &choose(p, Pass::backward_queries, a, device, dtype) : nullptr;
  auto* const queries_list =
      of_queries ? add_list(of_queries->config.tile_queries, false) : nullptr;
  preparation.tiles = list_arguments(p, kBackwardQueries, false, nullptr);
  preparation.tiles_of_longest =
      static_cast<int>((p.max_seqlen + kBackwardQueries - 1) / kBackwardQueries);
  preparation.mask = a.mask;
  preparation.masks = workspace.take<TileMask>(query_tiles(p) * sizeof(TileMask));
  a.tile_masks = preparation.masks;
  if (!params.deterministic) {
    // dq's sums and the totals are adjacent and zeroed together.
    a.dq_sums = workspace.take<float>(dq_sums_bytes(p));
    if (wants_totals(params)) take_totals(params, workspace, a);
    preparation.zeros = reinterpret_cast<uint4*>(a.dq_sums);
    preparation.zero_count = (dq_sums_bytes(p) + totals_bytes(params)) / int64_t{sizeof(uint4)};
  }
  error = prepare(preparation, stream);
  if (error != cudaSuccess) return error;
  if (of_biases) {
    a.list = bias_list;
    a.bias_row = static_cast<int>(bias_row(p));
    a.bias_sums = workspace.take<float>(bias_sums_bytes(params));
    error = run_bias_gradient(params, *of_biases, a, dtype, stream);
    if (error != cudaSuccess) return error;
  }
  if (of_queries && p.total_queries > 0) {
    a.list = queries_list;
    error = launch(*of_queries, dtype, a,
                   most_pieces(p, p.total_queries, of_queries->config.tile_queries), stream);
    if (error != cudaSuccess) return error;
  }
  a.list = keys_list;
  error = launch(of_keys, dtype, a, most_pieces(p, p.total_keys, of_keys.config.tile_keys), stream);
  if (error == cudaSuccess) error = launch_finish_dq(of_keys, dtype, a, stream);
  if (error != cudaSuccess || !wants_totals(params)) return error;
  return add_totals(params, a, stream);
}

}  // namespace seqfuse::ops
