// The operators as differentiable functions of tensors; also registered as torch.ops.seqfuse.*.
// Sizes and seeds are c10::SymInt if they may be symbolic while tracing: pass integers.
//
// Common rules. T: rows of a jagged tensor, B: sequences; offsets is int64 (or int32) [B + 1] on
// the tensors' device, from 0, non-decreasing, to T. dtypes float32 and float64 on the CPU,
// float32, float16 and bfloat16 on CUDA, which computes in float32. All arguments are on one
// device. Arguments are checked; errors (c10::Error) say what was given and what was expected. No
// operator synchronises: on CUDA the values of offsets, ids, counts and times are not checked,
// except attention's offsets and counts, by its kernels (kernels/hstu_attention.h).
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

namespace seqfuse::ops {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// ---- normalisation (layer_norm.cpp, layer_norm_gate.cpp, l2_normalize.cpp, dropout.cpp)
// y = (x - mean) * rsqrt(var + eps) * weight + bias over the last dimension D of x [T, D].
// weight, bias: [D] or none.
Tensor layer_norm(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                  double eps);

// dropout(u * layer_norm(o)): o, u [T, D]; u may be a strided view (last stride 1). p = 0: no
// dropout. The mask is Philox(seed) by element index, so it is the same for any number of threads.
Tensor layer_norm_gate(const Tensor& o, const Tensor& u, const OptionalTensor& weight,
                       const OptionalTensor& bias, double eps, double dropout, c10::SymInt seed);

// Norms fused with residual additions (residual_norm.cpp). terms: 1 to 3 tensors [T, D], added in
// order, each sum rounded to their dtype; the first result of add_* is their sum.
Tensor layer_norm_residual(const Tensor& x, const Tensor& residual,  // layer_norm(x) + residual
                           const OptionalTensor& weight, const OptionalTensor& bias, double eps);
std::tuple<Tensor, Tensor> add_layer_norm(at::TensorList terms, const OptionalTensor& weight,
                                          const OptionalTensor& bias, double eps);
// Two norms with the same statistics.
std::tuple<Tensor, Tensor> dual_layer_norm(const Tensor& x, const OptionalTensor& weight,
                                           const OptionalTensor& bias,
                                           const OptionalTensor& weight2,
                                           const OptionalTensor& bias2, double eps);
std::tuple<Tensor, Tensor, Tensor> add_dual_layer_norm(at::TensorList terms,
                                                       const OptionalTensor& weight,
                                                       const OptionalTensor& bias,
                                                       const OptionalTensor& weight2,
                                                       const OptionalTensor& bias2, double eps);

// Each row of x [T, D] divided by max(|row|, eps).
Tensor l2_normalize(const Tensor& x, double eps);

// x * mask / (1 - p), mask by Philox(seed); p = 0 returns x.
Tensor dropout(const Tensor& x, double p, int64_t seed);

// ---- attention (hstu_attention.cpp)
struct HstuAttentionOptions {
  double alpha = 1.0;              // scale of q k^T
  c10::SymInt scaling_seqlen = 1;  // S: the sum is divided by it
  bool causal = true;
  int64_t target_group_size = 1;      // g
  int64_t max_attn_len = 0;           // w: window, 0 = off
  int64_t min_full_attn_seq_len = 0;  // F: last F history tokens and all targets ignore the window
  c10::SymInt max_seqlen = 0;         // at least the longest sequence of keys; needed on a GPU
  OptionalTensor num_contexts;        // int64 [B] or none (0)
  OptionalTensor num_targets;         // int64 [B] or none (0)
  // Relative bias added to alpha * q k^T:
  // position_bias[(N-1) + j - i], N = (size + 1) / 2;
  // time_bias[bucket(t[i+1] - t[j])],
  // bucket(dt) = clamp(floor(ln(max(|dt|, 1)) / 0.301), 0, size - 1).
  OptionalTensor position_bias;  // [2N - 1]
  OptionalTensor time_bias;      // [buckets]
  OptionalTensor timestamps;     // int64 [Tk]; needed with time_bias
  OptionalTensor request_times;  // int64 [B]: t[n], the time after the last event; none: t[n-1]
};

// out_i = sum_j silu(alpha q_i.k_j + bias_ij) / S * M_ij * v_j. q [Tq, H, d], k, v [Tk, H, d] with
// any row and head stride (last stride 1); returns [Tq, H, d]. Row i of a shorter q has position
// n_k - n_q + i.
Tensor hstu_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& q_offsets,
                      const Tensor& k_offsets, const HstuAttentionOptions& options);

// ---- a whole layer (hstu_layer.cpp, hstu_layer_fused.cpp)
// Any floating dtype; converted to that of x.
struct HstuLayerWeights {
  OptionalTensor input_norm_weight, input_norm_bias;    // [D]
  Tensor uvqk;                                          // [D, 4 H d]; columns: u, v, q, k
  OptionalTensor uvqk_bias;                             // [4 H d]
  OptionalTensor output_norm_weight, output_norm_bias;  // [H d]
  Tensor output;                                        // [H d, D]
  OptionalTensor output_bias;                           // [D]
};
struct HstuLayerOptions {
  int64_t heads = 1;
  double eps = 1e-5;
  double dropout = 0;
  c10::SymInt seed = 0;  // of the dropout mask
  // Fused only: recompute in backward instead of keeping 2 D and 8 H d bytes per token.
  bool recompute_input_layernorm = false, recompute_input_silu = false;
  HstuAttentionOptions attention;
};
// x + dropout(u * layer_norm(attention(q, k, v))) W_o + b_o, where [u | v | q | k] =
// silu(layer_norm(x) W_uvqk + b_uvqk): x [T, D] -> [T, D]. Fused in 16 bits on a GPU, with float32
// gradients of W and b; gradients of b_o and b_uvqk are summed in float32.
Tensor hstu_layer(const Tensor& x, const HstuLayerWeights& weights, const Tensor& offsets,
                  const HstuLayerOptions& options);

// ---- jagged tensors (jagged.cpp, jagged_parts.cpp)
Tensor lengths_to_offsets(const Tensor& lengths);  // [B] -> [B + 1], exclusive cumulative sum
// Concatenates sequence by sequence: parts[p] [T_p, D] with offsets[p] [B + 1].
Tensor jagged_concat(const std::vector<Tensor>& parts, const std::vector<Tensor>& offsets);
// The inverse: cuts each sequence at the lengths given by part_offsets. part_rows: rows of each
// part (its last offset); optional on the CPU. On CUDA both take at most 8 parts.
std::vector<Tensor> jagged_split(const Tensor& values, const std::vector<Tensor>& part_offsets,
                                 const std::vector<int64_t>& part_rows = {});
Tensor jagged_to_dense(const Tensor& values, const Tensor& offsets, int64_t max_len,
                       double padding);
// total: T, the last offset; optional on the CPU.
Tensor dense_to_jagged(const Tensor& dense, const Tensor& offsets,  // [B, N, D] -> [T, D]
                       std::optional<int64_t> total = std::nullopt);
Tensor jagged_repeat(const Tensor& rows, const Tensor& offsets,  // [B, D] -> [T, D]
                     std::optional<int64_t> total = std::nullopt);
// [a0, b0, a1, b1, ...]: a, b [T, D] -> [2T, D].
Tensor interleave(const Tensor& a, const Tensor& b);

// ---- encodings (encoding.cpp)
// scale * x + table[min(pos, high)], pos counted from each sequence's start;
// high = min(length - num_targets, rows - 1): all targets share one position.
// num_targets: int64 [B] or none.
Tensor position_encoding(const Tensor& x, const Tensor& table, const Tensor& offsets,
                         const OptionalTensor& num_targets, double scale);
// x + table[bucket(request_time - t)], bucket = clamp(floor(sqrt(max(dt, 0) / unit)), 0, rows - 1).
Tensor time_encoding(const Tensor& x, const Tensor& table, const Tensor& offsets,
                     const Tensor& timestamps, double unit);

// ---- embeddings (embedding.cpp)
// table [V, D] rows of ids int64 [T]. Gradient: rows of equal ids summed in order of position. On
// CUDA, here and in all operators that gather table rows: summed in float32 by atomics, or, with
// at::globalContext().deterministicAlgorithms(), in a fixed order at about the cost of a sort.
// sparse, CUDA: an uncoalesced sparse tensor whose indices are ids and whose values are the
// result's gradient, since counting touched rows would synchronise. sparse, CPU: a coalesced sparse
// tensor of the touched rows. (A leaf's grad() loses the coalesced flag; _indices() and _values()
// are still sorted and unique.)
Tensor embedding_lookup(const Tensor& table, const Tensor& ids, bool sparse);

// ---- losses (sampled_softmax.cpp, full_softmax.cpp, sample_uniform.cpp)
// Loss per position [T]: -log softmax of the positive among itself and K negatives, logits =
// <hidden, row> / temperature; negatives equal to the target get -5e4. hidden [T, D], table [V, D]
// (normalise both before if wanted), targets int64 [T], negatives int32 [T, K]. No [T, K, D] is
// made: memory is a few words for each of the T (K + 1) pairs and twice the table's. Gradient of
// the table: dense, or sparse_table_grad (CPU): as a coalesced sparse tensor of the touched rows.
// 16-bit types: losses are float32.
Tensor sampled_softmax_loss(const Tensor& hidden, const Tensor& table, const Tensor& targets,
                            const Tensor& negatives, double temperature,
                            bool sparse_table_grad = false);
// The same over all rows listed in catalogue (int64 [C], each at most once, every target among
// them). Computed in blocks of rows, again in the backward pass: instead of [T, C], at most max(1
// million, 64 C) elements (CUDA: 256 MiB) and three times the catalogue's rows are in memory.
// 16-bit types are converted to float32, losses are float32. Gradients are bit-equal from run to
// run, and vary with at::set_num_threads only as far as at::mm does.
// seen: int64 [T], the id that each position adds to those its sequence has seen; offsets: of the
// sequences. A position's softmax leaves out all ids that its sequence has seen up to and including
// it, except its target. Ids that catalogue does not list are ignored.
Tensor full_softmax_loss(const Tensor& hidden, const Tensor& table, const Tensor& targets,
                         const Tensor& catalogue, double temperature,
                         const OptionalTensor& seen = {}, const OptionalTensor& offsets = {});
// int32 [rows, per_row], drawn from pool (int64 [C], ids below 2^31) uniformly and with
// replacement.
Tensor sample_uniform(const Tensor& pool, int64_t rows, int64_t per_row, int64_t seed);

}  // namespace seqfuse::ops
