#include "ops/torch/encoder.h"

#include <torch/library.h>

#include <string>

#include "ops/kernels/attention/masked_attention.h"
#include "ops/kernels/norm/residual_norm.h"
#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
#include "ops/torch/dispatch.h"

namespace seqfuse::ops {
namespace {

// Part `part` of qkv: q, k or v.
BatchedHeads heads_of_rows(const Tensor& qkv, int64_t part, int64_t heads, int64_t tokens) {
  const int64_t width = qkv.size(1), d = width / 3 / heads;
  auto* data = static_cast<char*>(const_cast<void*>(qkv.const_data_ptr()));
  return {data + part * heads * d * qkv.element_size(), tokens * width, d, width};
}

// ---- the same for Python

Activation activation_named(const char* op, c10::string_view name) {
  if (name == "gelu") return Activation::gelu_erf;
  if (name == "gelu_new") return Activation::gelu_tanh;
  TORCH_CHECK_VALUE(name == "relu", op, ": activation is ", name,
                    "; expected gelu, gelu_new or relu");
  return Activation::relu;
}

void check_vector_of(const Arg& arg, const Arg& x) {
  check_sizes(arg, {x.tensor.size(1)}, "the columns of x");
  check_like(arg, x);
}

void check_matrix(const Arg& x) {
  check_rank(x, 2, "[rows, D]");
  TORCH_CHECK_VALUE(x.tensor.size(1) > 0, x.op, ": x is ", x.tensor.sizes(),
                    "; expected at least one column");
  check_float(x);
}

Tensor run_bias_activation(const Tensor& x, const Tensor& bias, c10::string_view activation) {
  const Arg arg{"bias_activation", "x", x};
  check_matrix(arg);
  check_vector_of({arg.op, "bias", bias}, arg);
  const Activation act = activation_named(arg.op, activation);
  Tensor y = at::empty(x.sizes(), x.options());
  bias_activation_into(y, x.contiguous(), bias.contiguous(), act);
  return y;
}

Tensor bias_activation_shape(const Tensor& x, const Tensor&, c10::string_view) {
  return empty_like_shape(x);
}

Tensor run_bias_residual_norm(const Tensor& x, const Tensor& bias, const Tensor& residual,
                              const Tensor& weight, const Tensor& beta, double eps) {
  const Arg arg{"bias_residual_norm", "x", x};
  check_matrix(arg);
  check_eps(arg.op, eps);
  check_sizes({arg.op, "residual", residual}, x.sizes(), "like x");
  check_like({arg.op, "residual", residual}, arg);
  check_vector_of({arg.op, "bias", bias}, arg);
  check_vector_of({arg.op, "weight", weight}, arg);
  check_vector_of({arg.op, "beta", beta}, arg);
  return add_norm(x.contiguous(), bias.contiguous(), residual.contiguous(), weight.contiguous(),
                  beta.contiguous(), eps);
}

Tensor bias_residual_norm_shape(const Tensor& x, const Tensor&, const Tensor&, const Tensor&,
                                const Tensor&, double) {
  return empty_like_shape(x);
}

Tensor run_rows_attention(const Tensor& qkv, int64_t heads, at::TensorList lists,
                          at::IntArrayRef sizes, double scale) {
  const Arg arg{"rows_attention", "qkv", qkv};
  check_rank(arg, 2, "[B * n, 3 * heads * d]");
  check_device(arg);
  if (qkv.is_cpu()) check_cpu_float(arg);
  TORCH_CHECK_VALUE(heads > 0 && qkv.size(1) > 0 && qkv.size(1) % (3 * heads) == 0, arg.op,
                    ": qkv is ", qkv.sizes(), " with ", heads,
                    " heads; expected [B * n, 3 * heads * d]");
  const int64_t d = qkv.size(1) / 3 / heads;
  if (qkv.is_cuda()) {
    const auto type = qkv.scalar_type();
    TORCH_CHECK_VALUE((type == at::kHalf || type == at::kBFloat16) && d % 8 == 0 && d <= 128,
                      arg.op, ": qkv is ", type, " with heads of ", d,
                      "; on CUDA expected Half or BFloat16 and a multiple of 8 up to 128");
    TORCH_CHECK_VALUE(scale > 0, arg.op, ": scale is ", scale,
                      "; expected a positive number on CUDA");
  }
  check_block_mask(arg.op, lists, sizes, qkv.device());
  const int64_t batch = sizes[0], tokens = sizes[1], rows = qkv.size(0);
  TORCH_CHECK_VALUE(tokens == sizes[2] && (tokens == 0 ? rows == 0 : rows % tokens == 0) &&
                        (batch == 1 || batch * tokens == rows),
                    arg.op, ": qkv has ", rows, " rows and the mask ", batch, " sequences of ",
                    sizes[1], " queries and ", sizes[2],
                    " keys; expected as many rows, or one mask for all sequences");
  // Kernels read 16 bytes at a time.
  const bool aligned = reinterpret_cast<uintptr_t>(qkv.const_data_ptr()) % 16 == 0;
  return rows_attention(aligned ? qkv.contiguous() : qkv.clone(at::MemoryFormat::Contiguous), heads,
                        {.lists = lists.vec(),
                         .batch = batch,
                         .queries = tokens,
                         .keys = tokens,
                         .step = sizes[3],
                         .plain = static_cast<masks::Plain>(sizes[4]),
                         .allowed = sizes[5]},
                        scale);
}

Tensor rows_attention_shape(const Tensor& qkv, c10::SymInt, at::TensorList, c10::SymIntArrayRef,
                            double) {
  return empty_shape({qkv.sym_size(0), qkv.sym_size(1) / 3}, qkv.options());
}

}  // namespace

void bias_activation_into(const Tensor& y, const Tensor& x, const Tensor& bias,
                          Activation activation) {
  const DeviceGuard guard(x);
  SEQFUSE_RUN(x, bias_activation,
              {.x = x.const_data_ptr(),
               .bias = bias.const_data_ptr(),
               .y = y.mutable_data_ptr(),
               .rows = x.size(0),
               .dim = x.size(1),
               .activation = activation},
              dtype_of(x));
}

Tensor add_norm(const Tensor& x, const Tensor& a, const Tensor& b, const Tensor& weight,
                const Tensor& beta, double eps) {
  const DeviceGuard guard(x);
  const int64_t rows = x.size(0), dim = x.size(1);
  Tensor y = at::empty({rows, dim}, x.options());
  SEQFUSE_RUN(x, residual_norm_forward,
              {.x = x.const_data_ptr(),
               .a = a.const_data_ptr(),
               .b = b.const_data_ptr(),
               .weight = weight.const_data_ptr(),
               .bias = beta.const_data_ptr(),
               .y = y.mutable_data_ptr(),
               .rows = rows,
               .dim = dim,
               .x_stride = dim,
               .a_stride = a.dim() == 1 ? 0 : dim,  // a vector is read again in each row
               .b_stride = dim,
               .eps = eps},
              dtype_of(x));
  return y;
}

Tensor rows_attention(const Tensor& qkv, int64_t heads, const BlockMaskTensors& mask,
                      double scale) {
  const DeviceGuard guard(qkv);
  const int64_t rows = qkv.size(0), tokens = mask.queries, width = qkv.size(1) / 3;
  const int64_t batch = tokens == 0 ? 0 : rows / tokens;
  Tensor out = at::empty({rows, width}, qkv.options());
  Tensor lse = at::empty({batch, heads, tokens}, sum_options(qkv));
  MaskedAttentionParams params{
      .mask = block_mask_view(mask.lists, mask.sizes()),
      .batch = batch,
      .heads = heads,
      .key_heads = heads,
      .head_dim = width / heads,
      .scale = scale,
      .q = heads_of_rows(qkv, 0, heads, tokens),
      .k = heads_of_rows(qkv, 1, heads, tokens),
      .v = heads_of_rows(qkv, 2, heads, tokens),
      .out = {out.mutable_data_ptr(), tokens * width, width / heads, width},
      .lse = lse.mutable_data_ptr()};
  SEQFUSE_RUN(qkv, masked_attention_forward, params, dtype_of(qkv));
  return out;
}

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  Definition(library, "bias_activation_forward(Tensor x, Tensor bias, str activation) -> Tensor")
      .kernels(&run_bias_activation, &bias_activation_shape)
      .no_gradient();
  Definition(library,
             "bias_residual_norm_forward(Tensor x, Tensor bias, Tensor residual, Tensor weight, "
             "Tensor beta, float eps) -> Tensor")
      .kernels(&run_bias_residual_norm, &bias_residual_norm_shape)
      .no_gradient();
  Definition(library,
             "rows_attention_forward(Tensor qkv, SymInt heads, Tensor[] mask, SymInt[] sizes, "
             "float scale) -> Tensor")
      .kernels(&run_rows_attention, &rows_attention_shape)
      .no_gradient();
}

}  // namespace seqfuse::ops
