#include "ops/kernels/attention/decode_attention.h"

#include "ops/torch/checks.h"
#include "ops/torch/decode/decode.h"

namespace seqfuse::ops {
namespace decode_attention_op {
namespace {

constexpr const char* kOp = "decode_attention";

void check_arguments(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& keys,
                     const Tensor& values, const std::vector<DecodeAttentionRow>& rows,
                     const DecodeAngles& angles) {
  const Arg query{kOp, "q", q};
  check_cpu(query);
  check_rank(query, 3, "[rows, heads, head_dim]");
  for (const Arg& arg : {Arg{kOp, "k", k}, Arg{kOp, "v", v}}) {
    check_sizes(arg, q.sizes(), "like q");
    check_like(arg, query);
    TORCH_CHECK_VALUE(arg.tensor.strides() == q.strides(), label(arg), " has strides ",
                      arg.tensor.strides(), "; expected ", q.strides(), ", like q");
  }
  TORCH_CHECK_VALUE(q.stride(2) == 1 || q.size(2) == 1, label(query), " has strides ", q.strides(),
                    "; expected elements of a head side by side");
  const Arg cached{kOp, "keys", keys};
  check_rank(cached, 4, "[rows, heads, slots, head_dim]");
  check_sizes(cached, {q.size(0), q.size(1), keys.size(2), q.size(2)}, "rows and heads of q");
  check_sizes({kOp, "values", values}, keys.sizes(), "like keys");
  check_like(cached, query);
  check_like({kOp, "values", values}, query);
  TORCH_CHECK_VALUE(keys.is_contiguous() && values.is_contiguous(), kOp,
                    ": keys or values are not contiguous");
  const int64_t count = q.size(0);
  TORCH_CHECK_VALUE(static_cast<int64_t>(rows.size()) == count, kOp, ": ", rows.size(),
                    " descriptions of rows; expected ", count);
  const auto expected = static_cast<size_t>(count * angles.half);
  for (const auto* values_of : {&angles.cos, &angles.sin, &angles.start_cos, &angles.start_sin}) {
    TORCH_CHECK_VALUE(values_of->size() == expected && 2 * angles.half <= q.size(2), kOp, ": ",
                      values_of->size(), " angles of ", angles.half, " pairs; expected ", expected,
                      " for heads of ", q.size(2));
  }
  const int64_t slots = keys.size(2);
  const auto within = [&](int64_t begin, int64_t end) {
    return begin >= 0 && begin <= end && end <= slots;
  };
  for (const DecodeAttentionRow& row : rows) {
    if (!row.active) continue;
    int64_t seen = row.first;
    bool valid = within(0, row.first) && within(row.slot, row.slot + 1);
    for (const SlotRange& range : row.newest) {
      valid = valid && within(range.begin, range.end);
      seen += range.end - range.begin;
    }
    TORCH_CHECK_VALUE(valid && seen >= 1 && seen <= slots, kOp, ": a row sees ", seen,
                      " slots and writes slot ", row.slot, "; the cache has ", slots);
  }
}

}  // namespace
}  // namespace decode_attention_op

Tensor decode_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& keys,
                        const Tensor& values, const std::vector<DecodeAttentionRow>& rows,
                        const DecodeAngles& angles) {
  decode_attention_op::check_arguments(q, k, v, keys, values, rows, angles);
  // float32 inputs stay views; copies have strides of their own, the same for all three.
  const Tensor query = q.to(at::kFloat), key = k.to(at::kFloat), value = v.to(at::kFloat);
  Tensor out = at::empty(q.sizes(), q.options().dtype(at::kFloat));
  decode_attention_cpu({.q = query.const_data_ptr<float>(),
                        .k = key.const_data_ptr<float>(),
                        .v = value.const_data_ptr<float>(),
                        .keys = keys.mutable_data_ptr(),
                        .values = values.mutable_data_ptr(),
                        .cos = angles.cos.data(),
                        .sin = angles.sin.data(),
                        .start_cos = angles.start_cos.data(),
                        .start_sin = angles.start_sin.data(),
                        .row = rows.data(),
                        .out = out.mutable_data_ptr<float>(),
                        .rows = q.size(0),
                        .heads = q.size(1),
                        .slots = keys.size(2),
                        .head_dim = q.size(2),
                        .half = angles.half,
                        .row_stride = query.stride(0),
                        .head_stride = query.stride(1)},
                       dtype_of(keys));
  return out.to(q.scalar_type());
}

}  // namespace seqfuse::ops
