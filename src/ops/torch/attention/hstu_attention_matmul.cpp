// HSTU attention on a GPU by matrix products over padded sequences.
#include <torch/types.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "ops/kernels/attention/dense_mask.h"
#include "ops/kernels/attention/hstu_mask.h"
#include "ops/kernels/attention/relative_bias.h"
#include "ops/torch/attention/hstu_attention_inputs.h"
#include "ops/torch/cuda.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {
namespace {

constexpr int64_t kScoreBytes = int64_t{512} << 20;  // scores in memory at a time

// [T, H, d] -> [B, H, N, d], zeros after the end of each sequence.
Tensor padded(const Tensor& heads, const Tensor& offsets, int64_t max_len) {
  const int64_t batch = offsets.numel() - 1;
  return jagged_to_dense(heads.flatten(1), offsets, max_len, 0)
      .view({batch, max_len, heads.size(1), heads.size(2)})
      .transpose(1, 2);
}

// The inverse: [T, H, d], like `like`.
Tensor jagged(const Tensor& dense, const Tensor& offsets, const Tensor& like) {
  return dense_to_jagged(dense.transpose(1, 2).flatten(2), offsets, like.size(0))
      .view(like.sizes());
}

// Whether every key has a query, so that row i of the queries has position i.
bool same_positions(const HstuAttentionInputs& in) {
  return in.q_offsets.const_data_ptr() == in.k_offsets.const_data_ptr();
}

// The terms shared by all heads, as dense tensors that broadcast over [b, h, i, j]. Keys past the
// end of a sequence may have a mask of 1: their v is 0, and so is the gradient of their scores.
class DenseTerms {
 public:
  explicit DenseTerms(const HstuAttentionInputs& in) : in_(in) {
    if (in.position_bias.defined() || in.time_bias.defined()) bias_ = make_bias();
    mask_ = make_mask().to(in.q.scalar_type());
  }

  // For sequences [begin, end).
  Tensor mask(int64_t begin, int64_t end) const { return part(mask_, begin, end); }
  Tensor bias(int64_t begin, int64_t end) const {
    return bias_.defined() ? part(bias_, begin, end) : Tensor();
  }
  const Tensor& whole_bias() const { return bias_; }

  // The gradients of position_bias and time_bias, given the gradient of the bias [B, N, N].
  std::pair<Tensor, Tensor> bias_gradients(const Tensor& gradient) const {
    Tensor dense = by_position(gradient.contiguous(), /*backward=*/true);
    const int64_t positions = in_.position_bias.defined() ? in_.position_bias.numel() : 0;
    const int64_t buckets = in_.time_bias.defined() ? in_.time_bias.numel() : 0;
    RelativeBiasParams params = bias_params(dense);
    Tensor partials =
        at::empty({params.batch, positions + buckets}, dense.options().dtype(at::kFloat));
    params.partials = partials.mutable_data_ptr<float>();
    run(params, dense, /*backward=*/true);
    const Tensor sums = partials.sum(0);
    return {positions > 0 ? sums.slice(0, 0, positions) : Tensor(),
            buckets > 0 ? sums.slice(0, positions) : Tensor()};
  }

 private:
  static Tensor part(const Tensor& all, int64_t begin, int64_t end) {
    return (all.size(0) == 1 ? all : all.slice(0, begin, end)).unsqueeze(1);
  }

  // bool [1 or B, N, N]; 1 if the longest sequence's mask serves all.
  Tensor make_mask() const {
    const int64_t n = in_.max_seqlen;
    const bool one_for_all = same_positions(in_) && !in_.num_contexts.defined() &&
                             !in_.num_targets.defined() &&
                             (in_.mask.max_attn_len == 0 || in_.mask.min_full_attn_seq_len == 0);
    const int64_t batch = one_for_all ? 1 : in_.k_offsets.numel() - 1;
    Tensor mask = at::empty({batch, n, n}, in_.q.options().dtype(at::kBool));
    const auto integers = [&](const Tensor& values) {
      return values.defined() && !one_for_all ? values.const_data_ptr<int64_t>() : nullptr;
    };
    const DenseMaskParams params{.mask = mask.mutable_data_ptr<bool>(),
                                 .options = kernel_mask(in_.mask),
                                 .q_offsets = integers(in_.q_offsets),
                                 .k_offsets = integers(in_.k_offsets),
                                 .num_contexts = integers(in_.num_contexts),
                                 .num_targets = integers(in_.num_targets),
                                 .batch = batch,
                                 .max_len = n};
#ifdef SEQFUSE_HAS_CUDA
    if (mask.is_cuda()) {
      C10_CUDA_CHECK(dense_mask_cuda(params, c10::cuda::getCurrentCUDAStream()));
      return mask;
    }
#endif
    dense_mask_cpu(params);
    return mask;
  }

  RelativeBiasParams bias_params(const Tensor& dense) const {
    const auto floats = [](const Tensor& weights) {
      return weights.defined() ? weights.const_data_ptr<float>() : nullptr;
    };
    const auto integers = [](const Tensor& values) {
      return values.defined() ? values.const_data_ptr<int64_t>() : nullptr;
    };
    return {.position_bias = floats(in_.position_bias),
            .time_bias = floats(in_.time_bias),
            .offsets = in_.k_offsets.const_data_ptr<int64_t>(),
            .timestamps = integers(in_.timestamps),
            .request_times = integers(in_.request_times),
            .bias = const_cast<void*>(dense.const_data_ptr()),
            .batch = in_.k_offsets.numel() - 1,
            .max_len = in_.max_seqlen,
            .position_bias_size = in_.position_bias.defined() ? in_.position_bias.numel() : 0,
            .num_time_buckets = in_.time_bias.defined() ? in_.time_bias.numel() : 0,
            .partials = nullptr};
  }

  static void run([[maybe_unused]] const RelativeBiasParams& params,
                  [[maybe_unused]] const Tensor& dense, [[maybe_unused]] bool backward) {
#ifdef SEQFUSE_HAS_CUDA
    if (dense.is_cuda()) {
      const auto stream = c10::cuda::getCurrentCUDAStream();
      C10_CUDA_CHECK(backward ? relative_bias_backward_cuda(params, dtype_of(dense), stream)
                              : relative_bias_forward_cuda(params, dtype_of(dense), stream));
      return;
    }
#endif
    TORCH_CHECK_NOT_IMPLEMENTED(false,
                                "hstu_attention: relative bias by matrix products needs a GPU");
  }

  Tensor make_bias() const {
    const int64_t batch = in_.k_offsets.numel() - 1, n = in_.max_seqlen;
    Tensor dense = at::empty({batch, n, n}, in_.q.options());
    run(bias_params(dense), dense, /*backward=*/false);
    return by_position(dense, /*backward=*/false);
  }

  // Rows by query from rows by key position, or the inverse.
  Tensor by_position(const Tensor& rows, bool backward) const {
    if (same_positions(in_)) return rows;
    const int64_t n = in_.max_seqlen;
    // The queries are the last positions of the keys.
    const Tensor shift = in_.k_offsets.diff() - in_.q_offsets.diff();
    const Tensor place = (at::arange(n, shift.options()).view({1, n, 1}) + shift.view({-1, 1, 1}))
                             .clamp_max(n - 1)
                             .expand({rows.size(0), n, n});
    if (!backward) return rows.gather(1, place);
    // Rows past the last query have a gradient of 0.
    return at::zeros_like(rows).scatter_add_(1, place, rows);
  }

  const HstuAttentionInputs& in_;
  Tensor mask_, bias_;
};

// Calls body(begin, end) for ranges of sequences whose scores fit in kScoreBytes.
template <class Body>
void for_each_chunk(const HstuAttentionInputs& in, Body&& body) {
  const int64_t batch = in.q_offsets.numel() - 1;
  const int64_t bytes = in.q.size(1) * in.max_seqlen * in.max_seqlen * in.q.element_size();
  const int64_t chunk = std::max<int64_t>(1, kScoreBytes / std::max<int64_t>(bytes, 1));
  for (int64_t begin = 0; begin < batch; begin += chunk)
    body(begin, std::min(batch, begin + chunk));
}

// alpha q k^T + bias for sequences [begin, end).
Tensor scores(const HstuAttentionInputs& in, const DenseTerms& terms, const Tensor& q,
              const Tensor& k, int64_t begin, int64_t end) {
  Tensor s = at::matmul(q, k.transpose(2, 3)).mul_(in.alpha);
  if (const Tensor bias = terms.bias(begin, end); bias.defined()) s.add_(bias);
  return s;
}

}  // namespace

Tensor attention_by_matmul(const HstuAttentionInputs& in) {
  const DeviceGuard guard(in.q);
  if (in.max_seqlen == 0) return at::zeros_like(in.q);
  const DenseTerms terms(in);
  const Tensor q = padded(in.q, in.q_offsets, in.max_seqlen);
  const Tensor k = padded(in.k, in.k_offsets, in.max_seqlen);
  const Tensor v = padded(in.v, in.k_offsets, in.max_seqlen);
  Tensor out = at::empty(q.sizes(), q.options());
  for_each_chunk(in, [&](int64_t begin, int64_t end) {
    const Tensor s = scores(in, terms, q.slice(0, begin, end), k.slice(0, begin, end), begin, end);
    const Tensor weights = at::silu(s).mul_(terms.mask(begin, end));
    out.slice(0, begin, end).copy_(at::matmul(weights, v.slice(0, begin, end)));
  });
  out.div_(in.scaling_seqlen);
  return jagged(out, in.q_offsets, in.q);
}

HstuAttentionGradients attention_gradients_by_matmul(const HstuAttentionInputs& in,
                                                     const Tensor& dout_in, WantedBiases wanted) {
  const DeviceGuard guard(in.q);
  const bool of_position = in.position_bias.defined() && wanted[0];
  const bool of_time = in.time_bias.defined() && wanted[1];
  if (in.max_seqlen == 0)
    return {at::zeros_like(in.q), at::zeros_like(in.k), at::zeros_like(in.v),
            of_position ? at::zeros_like(in.position_bias) : Tensor(),
            of_time ? at::zeros_like(in.time_bias) : Tensor()};
  const DenseTerms terms(in);
  const Tensor q = padded(in.q, in.q_offsets, in.max_seqlen);
  const Tensor k = padded(in.k, in.k_offsets, in.max_seqlen);
  const Tensor v = padded(in.v, in.k_offsets, in.max_seqlen);
  const Tensor dout = padded(dout_in, in.q_offsets, in.max_seqlen).div(in.scaling_seqlen);
  Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v), dbias;
  if (of_position || of_time) dbias = at::empty_like(terms.whole_bias());
  for_each_chunk(in, [&](int64_t begin, int64_t end) {
    const auto part = [&](const Tensor& all) { return all.slice(0, begin, end); };
    const Tensor mask = terms.mask(begin, end);
    const Tensor s = scores(in, terms, part(q), part(k), begin, end);
    const Tensor weights = at::silu(s).mul_(mask);
    part(dv).copy_(at::matmul(weights.transpose(2, 3), part(dout)));
    const Tensor dweights = at::matmul(part(dout), part(v).transpose(2, 3)).mul_(mask);
    Tensor ds = at::silu_backward(dweights, s);
    if (dbias.defined()) part(dbias).copy_(ds.sum(1));
    ds.mul_(in.alpha);
    part(dq).copy_(at::matmul(ds, part(k)));
    part(dk).copy_(at::matmul(ds.transpose(2, 3), part(q)));
  });
  HstuAttentionGradients gradients{.q = jagged(dq, in.q_offsets, in.q),
                                   .k = jagged(dk, in.k_offsets, in.k),
                                   .v = jagged(dv, in.k_offsets, in.v),
                                   .position_bias = {},
                                   .time_bias = {}};
  if (dbias.defined()) {
    const auto [d_position, d_time] = terms.bias_gradients(dbias);
    if (of_position) gradients.position_bias = d_position;
    if (of_time) gradients.time_bias = d_time;
  }
  return gradients;
}

}  // namespace seqfuse::ops
