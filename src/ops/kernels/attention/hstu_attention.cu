// Launches the attention kernels: checks, workspace, the choice of head_dim.
#include "ops/kernels/attention/hstu_attention.h"

#include <algorithm>
#include <limits>

#include "ops/kernels/attention/common/hstu_attention_bias_sums.cuh"
#include "ops/kernels/attention/common/hstu_attention_prepare.cuh"
#include "ops/kernels/attention/common/hstu_attention_totals.cuh"
#include "ops/kernels/attention/sm80/launch.h"
#include "ops/kernels/common/device_limits.h"

namespace seqfuse::ops {
namespace {

using sm80::Arguments;

// Of the tables for biases by time and both tables of times, with room for their alignment.
int64_t time_bytes(const HstuAttentionParams& p) {
  return p.time_bias ? int64_t{sizeof(sm80::TimeTables)} + p.total_keys * 16 + 3 * 256 : 0;
}

// With the widest moves that its addresses allow.
sm80::HeadsView view_of(const JaggedHeads& t, int64_t head_dim) {
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
  a.mask = {bounded(p.target_group_size), bounded(p.max_attn_len), bounded(p.min_full_attn_seq_len),
            p.causal};
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

// Takes pieces of the workspace in turn.
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
                             sm80::WorkList* list) {
  // Two tensors of half words are read for each tile of the list. What was best on an H200, whose
  // cache has 50 MB: small groups and a last one of two for tiles of queries; for tiles of keys,
  // whose kernel adds to dq besides, large groups.
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
          .causal = p.causal,
          .groups = groups,
          .last_group = of_keys ? groups - 1 : std::max(groups - 2, 0),
          .list = list};
}

// What biases by time need, if there are any.
cudaError_t make_times(const HstuAttentionParams& p, Workspace& workspace, Arguments& a,
                       cudaStream_t stream) {
  if (!p.time_bias || p.total_keys == 0) return cudaSuccess;
  auto* tables = workspace.take<sm80::TimeTables>(sizeof(sm80::TimeTables));
  auto* times = workspace.take<double>(p.total_keys * 8);
  auto* times_after = workspace.take<double>(p.total_keys * 8);
  time_tables_kernel<<<1, sm80::kTimeCells, 0, stream>>>(
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

// Calls body with the width of tiles for a head_dim, as a constant.
template <class Body>
cudaError_t for_head_dim(int64_t head_dim, Body&& body) {
  if (head_dim <= 32) return body(std::integral_constant<int, 32>());
  if (head_dim <= 64) return body(std::integral_constant<int, 64>());
  if (head_dim <= 128) return body(std::integral_constant<int, 128>());
  return body(std::integral_constant<int, 256>());
}

int width_of(int64_t head_dim) {
  int width = 0;
  for_head_dim(head_dim, [&](auto w) {
    width = w();
    return cudaSuccess;
  });
  return width;
}

// With room for the tiles of any device.
int64_t forward_list_bytes(const HstuAttentionParams& p) {
  return sm80::work_list_bytes(p.total_queries, p.batch,
                               sm80::forward_queries(width_of(p.head_dim), true));
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
  int block_bytes = 0;
  error = shared_bytes_of_block(block_bytes);
  if (error != cudaSuccess) return error;
  const int64_t tile_queries =
      sm80::forward_queries(width_of(p.head_dim), is_short_of_shared(block_bytes));
  a.list = workspace.take<sm80::WorkList>(forward_list_bytes(p));
  forward_list_kernel<<<static_cast<unsigned>(list_slices(p.batch)), kPrepareThreads, 0, stream>>>(
      list_arguments(p, tile_queries, false, a.list));
  error = cudaGetLastError();
  if (error != cudaSuccess) return error;
  const int64_t pieces = (p.total_queries / tile_queries + p.batch) * p.heads;
  return for_head_dim(p.head_dim, [&](auto width) {
    return sm80::launch_forward<width()>(a, dtype, block_bytes, pieces, stream);
  });
}

namespace {

// Of the table of masks and the sums of dq.
int64_t query_tiles(const HstuAttentionParams& p) {
  return p.total_queries / sm80::kBackwardQueries + p.batch;
}
// Of whole pieces of the workspace, so that nothing lies between them and what is taken next.
int64_t dq_sums_bytes(const HstuAttentionParams& p) {
  static_assert(sm80::kBackwardQueries * sizeof(float) % 256 == 0);
  return query_tiles(p) * p.heads * sm80::kBackwardQueries * width_of(p.head_dim) * 4;
}

bool wants_bias_gradient(const HstuAttentionBackwardParams& params) {
  return params.d_position_bias || params.d_time_bias;
}
int64_t bias_row(const HstuAttentionParams& p) {
  return p.max_seqlen + sm80::kBiasGradientKeys + sm80::kBuckets;
}
int64_t key_tiles(const HstuAttentionParams& p) {
  return p.total_keys / sm80::kBiasGradientKeys + p.batch;
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
  constexpr int64_t kBytes = 3 * sm80::kTotals * sizeof(float);
  return wants_totals(params) ? kBytes * p.heads * p.head_dim : 0;
}
void take_totals(const HstuAttentionBackwardParams& params, Workspace& workspace, Arguments& a) {
  const int64_t width = params.forward.heads * params.forward.head_dim;
  auto* totals = workspace.take<float>(totals_bytes(params));
  for (sm80::GradientView* gradient : {&a.dq, &a.dk, &a.dv}) {
    gradient->totals = totals;
    gradient->totals_row = static_cast<int>(width);
    totals += sm80::kTotals * width;
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

// Of any list of tiles of a backward pass, for any device.
int64_t backward_list_bytes(const HstuAttentionParams& p) {
  const int width = width_of(p.head_dim);
  const int rows = std::min({sm80::backward_keys(width, true),
                             sm80::backward_dq_queries(width, true), sm80::kBiasGradientKeys});
  return sm80::work_list_bytes(std::max(p.total_keys, p.total_queries), p.batch, rows);
}

cudaError_t prepare(const BackwardPreparation& p, cudaStream_t stream) {
  const int64_t blocks = p.list_blocks() + p.mask_blocks() + p.zero_blocks();
  if (blocks > std::numeric_limits<int>::max()) return cudaErrorInvalidValue;
  backward_prepare_kernel<<<static_cast<unsigned>(blocks), kPrepareThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

// dk, dv and, unless a.dq_sums is null, dq; from a list of tiles of so many keys.
cudaError_t run_keys(const HstuAttentionParams& p, const Arguments& a, int64_t tile_keys,
                     DType dtype, int block_bytes, cudaStream_t stream) {
  const int64_t pieces = (p.total_keys / tile_keys + p.batch) * p.heads;
  return for_head_dim(p.head_dim, [&](auto width) {
    return sm80::launch_backward<width()>(a, dtype, block_bytes, pieces, stream);
  });
}

// dq alone, from a list of tiles of so many queries.
cudaError_t run_queries(const HstuAttentionParams& p, const Arguments& a, int64_t tile_queries,
                        DType dtype, int block_bytes, cudaStream_t stream) {
  if (p.total_queries == 0) return cudaSuccess;
  const int64_t pieces = (p.total_queries / tile_queries + p.batch) * p.heads;
  return for_head_dim(p.head_dim, [&](auto width) {
    return sm80::launch_backward_queries<width()>(a, dtype, block_bytes, pieces, stream);
  });
}

// Where there are no keys: those that are not of tokens.
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

cudaError_t run_bias_gradient(const HstuAttentionBackwardParams& params, const Arguments& a,
                              DType dtype, int block_bytes, cudaStream_t stream) {
  const HstuAttentionParams& p = params.forward;
  const cudaError_t error = for_head_dim(p.head_dim, [&](auto width) {
    return sm80::launch_bias_gradient<width()>(a, dtype, block_bytes, key_tiles(p), stream);
  });
  if (error != cudaSuccess) return error;
  const BiasSums sums{.rows = a.bias_sums,
                      .row = a.bias_row,
                      .max_seqlen = a.max_seqlen,
                      .scale = a.inverse_scale / sm80::kScoreGradientFactor,
                      .d_position = static_cast<float*>(params.d_position_bias),
                      .reach = a.bias.reach,
                      .d_time = static_cast<float*>(params.d_time_bias),
                      .buckets = params.d_time_bias ? bounded(p.num_time_buckets) : 0};
  const int64_t weights = (params.d_position_bias ? p.position_bias_size : 0) + sums.buckets;
  const auto blocks = static_cast<unsigned>((weights + kSumColumns - 1) / kSumColumns);
  bias_sums_kernel<<<blocks, kSumColumns * kSumParts, 0, stream>>>(
      list_arguments(p, sm80::kBiasGradientKeys, true, nullptr), sums);
  return cudaGetLastError();
}

}  // namespace

int64_t hstu_attention_backward_workspace_bytes(const HstuAttentionBackwardParams& params) {
  const HstuAttentionParams& p = params.forward;
  return time_bytes(p) + kMostLists * backward_list_bytes(p) +
         query_tiles(p) * static_cast<int64_t>(sizeof(sm80::TileMask)) + bias_sums_bytes(params) +
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
    return sm80::GradientView{view_of(to, p.head_dim), view_of(pre, p.head_dim), nullptr, 0};
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
    auto* list = workspace.take<sm80::WorkList>(backward_list_bytes(p));
    preparation.lists[preparation.list_count++] = list_arguments(p, tile_rows, of_keys, list);
    return list;
  };
  int block_bytes = 0;
  error = shared_bytes_of_block(block_bytes);
  if (error != cudaSuccess) return error;
  const int width = width_of(p.head_dim);
  const bool is_short = is_short_of_shared(block_bytes);
  const int tile_keys = sm80::backward_keys(width, is_short);
  const int tile_queries = sm80::backward_dq_queries(width, is_short);
  auto* const keys_list = add_list(tile_keys, true);
  auto* const bias_list =
      wants_bias_gradient(params) ? add_list(sm80::kBiasGradientKeys, true) : nullptr;
  auto* const queries_list = params.deterministic ? add_list(tile_queries, false) : nullptr;
  preparation.tiles = list_arguments(p, sm80::kBackwardQueries, false, nullptr);
  preparation.tiles_of_longest =
      static_cast<int>((p.max_seqlen + sm80::kBackwardQueries - 1) / sm80::kBackwardQueries);
  preparation.mask = a.mask;
  preparation.masks = workspace.take<sm80::TileMask>(query_tiles(p) * sizeof(sm80::TileMask));
  a.tile_masks = preparation.masks;
  if (!params.deterministic) {
    // Sums of dq and totals lie side by side, and are zeroed as one.
    a.dq_sums = workspace.take<float>(dq_sums_bytes(p));
    if (wants_totals(params)) take_totals(params, workspace, a);
    preparation.zeros = reinterpret_cast<uint4*>(a.dq_sums);
    preparation.zero_count = (dq_sums_bytes(p) + totals_bytes(params)) / int64_t{sizeof(uint4)};
  }
  error = prepare(preparation, stream);
  if (error != cudaSuccess) return error;
  if (wants_bias_gradient(params)) {
    a.list = bias_list;
    a.bias_row = static_cast<int>(bias_row(p));
    a.bias_sums = workspace.take<float>(bias_sums_bytes(params));
    error = run_bias_gradient(params, a, dtype, block_bytes, stream);
    if (error != cudaSuccess) return error;
  }
  if (params.deterministic) {
    a.list = queries_list;
    error = run_queries(p, a, tile_queries, dtype, block_bytes, stream);
    if (error != cudaSuccess) return error;
  }
  a.list = keys_list;
  error = run_keys(p, a, tile_keys, dtype, block_bytes, stream);
  if (error != cudaSuccess || !wants_totals(params)) return error;
  return add_totals(params, a, stream);
}

}  // namespace seqfuse::ops
