#include "ops/kernels/jagged/jagged.h"

#include <torch/autograd.h>
#include <torch/types.h>

#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
#include "ops/torch/dispatch.h"
#include "ops/torch/jagged/jagged_rows.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor to_dense(const Tensor& values_in, const Tensor& offsets, int64_t max_len, double padding) {
  const DeviceGuard guard(values_in);
  const Tensor values = with_unit_last_stride(values_in);
  const int64_t batch = offsets.numel() - 1, dim = values.size(1);
  const Tensor fill = at::full({dim}, padding, values.options());
  Tensor dense = at::empty({batch, max_len, dim}, values.options());
  SEQFUSE_RUN(values, jagged_to_dense,
              {.values = const_cast<void*>(values.const_data_ptr()),
               .offsets = offsets.const_data_ptr<int64_t>(),
               .dense = dense.mutable_data_ptr(),
               .fill = fill.const_data_ptr(),
               .batch = batch,
               .max_len = max_len,
               .dim = dim,
               .element_size = values.element_size(),
               .values_stride = values.stride(0),
               .dense_batch_stride = max_len * dim,
               .dense_stride = dim,
               .total = values.size(0)});
  return dense;
}

// total: rows of the result. Rows beyond the dense tensor's length become 0.
Tensor from_dense(const Tensor& dense_in, const Tensor& offsets, int64_t total) {
  const DeviceGuard guard(dense_in);
  const Tensor dense = with_unit_last_stride(dense_in);
  const int64_t batch = dense.size(0), dim = dense.size(2);
  const Tensor fill = at::zeros({dim}, dense.options());
  Tensor values = at::empty({total, dim}, dense.options());
  SEQFUSE_RUN(dense, jagged_from_dense,
              {.values = values.mutable_data_ptr(),
               .offsets = offsets.const_data_ptr<int64_t>(),
               .dense = const_cast<void*>(dense.const_data_ptr()),
               .fill = fill.const_data_ptr(),
               .batch = batch,
               .max_len = dense.size(1),
               .dim = dim,
               .element_size = dense.element_size(),
               .values_stride = dim,
               .dense_batch_stride = dense.stride(0),
               .dense_stride = dense.stride(1),
               .total = total});
  return values;
}

Tensor run_lengths(const Tensor& lengths) {
  const Arg arg{"lengths_to_offsets", "lengths", lengths};
  check_rank(arg, 1, "[B]");
  check_device(arg);
  TORCH_CHECK_VALUE(lengths.scalar_type() == at::kLong || lengths.scalar_type() == at::kInt,
                    label(arg), " is ", lengths.scalar_type(),
                    "; expected Long or Int (int64, int32)");
  TORCH_CHECK_VALUE(!lengths.is_cpu() || lengths.numel() == 0 || lengths.min().item<int64_t>() >= 0,
                    label(arg), " contains ", lengths.min().item<int64_t>(),
                    "; expected no negative length");
  const Tensor sums = lengths.to(at::kLong).cumsum(0);
  return at::cat({at::zeros({1}, sums.options()), sums});
}

Tensor run_to_dense(const Tensor& values, const Tensor& offsets, int64_t max_len, double padding) {
  const Arg arg{"jagged_to_dense", "values", values};
  check_rank(arg, 2, "[T, D]");
  check_device(arg);
  TORCH_CHECK_VALUE(max_len >= 0, "jagged_to_dense: max_len is ", max_len, "; expected 0 or more");
  const Tensor checked = checked_offsets({"jagged_to_dense", "offsets", offsets}, values.size(0),
                                         "values", values.device());
  return to_dense(values, checked, max_len, padding);
}

// Unlike dense_to_jagged, also for sequences longer than max_len.
Tensor run_to_dense_backward(const Tensor& ddense, const Tensor& offsets, int64_t total) {
  return from_dense(ddense, offsets.to(at::kLong).contiguous(), total);
}

Tensor run_from_dense(const Tensor& dense, const Tensor& offsets, std::optional<int64_t> total) {
  const Arg arg{"dense_to_jagged", "dense", dense},
      offsets_arg{"dense_to_jagged", "offsets", offsets};
  check_rank(arg, 3, "[B, N, D]");
  check_device(arg);
  check_on(offsets_arg, dense.device());
  check_sizes(offsets_arg, {dense.size(0) + 1}, "[B + 1] for dense [B, N, D]");
  const int64_t rows = total_rows(offsets_arg, total);
  const Tensor checked = checked_offsets(offsets_arg, rows, "the result", dense.device());
  const int64_t* place = checked.const_data_ptr<int64_t>();
  for (int64_t b = 0; checked.is_cpu() && b < dense.size(0); ++b) {
    TORCH_CHECK_VALUE(place[b + 1] - place[b] <= dense.size(1), "dense_to_jagged: sequence ", b,
                      " has ", place[b + 1] - place[b],
                      " rows by its offsets but dense has room for ", dense.size(1));
  }
  return from_dense(dense, checked, rows);
}

Tensor run_repeat(const Tensor& rows_in, const Tensor& offsets_in, std::optional<int64_t> total) {
  const Arg arg{"jagged_repeat", "rows", rows_in},
      offsets_arg{"jagged_repeat", "offsets", offsets_in};
  check_rank(arg, 2, "[B, D]");
  check_float(arg);
  check_on(offsets_arg, rows_in.device());
  check_sizes(offsets_arg, {rows_in.size(0) + 1}, "[B + 1] for rows [B, D]");
  const int64_t tokens = total_rows(offsets_arg, total);
  const Tensor offsets = checked_offsets(offsets_arg, tokens, "the result", rows_in.device());
  const DeviceGuard guard(rows_in);
  const Tensor rows = with_unit_last_stride(rows_in);
  const int64_t batch = rows.size(0), dim = rows.size(1);
  Tensor values = at::empty({tokens, dim}, rows.options());
  SEQFUSE_RUN(rows, jagged_repeat_forward,
              {.rows = rows.const_data_ptr(),
               .offsets = offsets.const_data_ptr<int64_t>(),
               .values = values.mutable_data_ptr(),
               .batch = batch,
               .dim = dim,
               .element_size = rows.element_size(),
               .rows_stride = rows.stride(0),
               .values_stride = dim,
               .total = tokens});
  return values;
}

Tensor run_repeat_backward(const Tensor& dvalues_in, const Tensor& offsets_in) {
  const Tensor offsets = offsets_in.to(at::kLong).contiguous();
  const DeviceGuard guard(offsets);
  const Tensor dvalues = with_unit_last_stride(dvalues_in);
  const int64_t batch = offsets.numel() - 1, dim = dvalues.size(1);
  Tensor drows = at::empty({batch, dim}, dvalues.options());
  SEQFUSE_RUN(dvalues, jagged_repeat_backward,
              {.dvalues = dvalues.const_data_ptr(),
               .offsets = offsets.const_data_ptr<int64_t>(),
               .drows = drows.mutable_data_ptr(),
               .batch = batch,
               .dim = dim,
               .dvalues_stride = dvalues.stride(0),
               .drows_stride = dim},
              dtype_of(dvalues));
  return drows;
}

Tensor lengths_shapes(const Tensor& lengths) {
  return empty_shape({lengths.sym_size(0) + 1}, lengths.options().dtype(at::kLong));
}

Tensor to_dense_shapes(const Tensor& values, const Tensor& offsets, c10::SymInt max_len, double) {
  return empty_shape({offsets.sym_size(0) - 1, std::move(max_len), values.sym_size(1)},
                     values.options());
}

Tensor to_dense_backward_shapes(const Tensor& ddense, const Tensor&, c10::SymInt total) {
  return empty_shape({std::move(total), ddense.sym_size(2)}, ddense.options());
}

c10::SymInt traced_total(const char* op, std::optional<c10::SymInt> total) {
  TORCH_CHECK_VALUE(total, op,
                    ": the number of rows of the result was not given; pass it as total where "
                    "shapes are traced (torch.compile)");
  return *std::move(total);
}

Tensor from_dense_shapes(const Tensor& dense, const Tensor&, std::optional<c10::SymInt> total) {
  return empty_shape({traced_total("dense_to_jagged", std::move(total)), dense.sym_size(2)},
                     dense.options());
}

Tensor repeat_shapes(const Tensor& rows, const Tensor&, std::optional<c10::SymInt> total) {
  return empty_shape({traced_total("jagged_repeat", std::move(total)), rows.sym_size(1)},
                     rows.options());
}

Tensor repeat_backward_shapes(const Tensor& dvalues, const Tensor& offsets) {
  return empty_shape({offsets.sym_size(0) - 1, dvalues.sym_size(1)}, dvalues.options());
}

const auto& to_dense_op() {
  static const auto op = find_operator<decltype(to_dense_shapes)>("seqfuse::jagged_to_dense");
  return op;
}

const auto& from_dense_op() {
  static const auto op = find_operator<decltype(from_dense_shapes)>("seqfuse::dense_to_jagged");
  return op;
}

const auto& repeat_op() {
  static const auto op = find_operator<decltype(repeat_shapes)>("seqfuse::jagged_repeat");
  return op;
}

class JaggedToDense : public torch::autograd::Function<JaggedToDense> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& values, const Tensor& offsets,
                        c10::SymInt max_len, double padding) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    Tensor dense = to_dense_op().call(values, offsets, std::move(max_len), padding);
    context->save_for_backward({offsets});
    context->saved_data["total"] = values.sym_size(0);
    return dense;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto op =
        find_operator<decltype(to_dense_backward_shapes)>("seqfuse::jagged_to_dense_backward");
    return {op.call(gradients[0], context->get_saved_variables()[0],
                    context->saved_data["total"].toSymInt()),
            Tensor(), Tensor(), Tensor()};
  }
};

class DenseToJagged : public torch::autograd::Function<DenseToJagged> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& dense, const Tensor& offsets,
                        std::optional<c10::SymInt> total) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    Tensor values = from_dense_op().call(dense, offsets, std::move(total));
    context->save_for_backward({offsets});
    context->saved_data["max_len"] = dense.sym_size(1);
    return values;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {to_dense_op().call(gradients[0], context->get_saved_variables()[0],
                               context->saved_data["max_len"].toSymInt(), 0),
            Tensor(), Tensor()};
  }
};

class JaggedRepeat : public torch::autograd::Function<JaggedRepeat> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& rows, const Tensor& offsets,
                        std::optional<c10::SymInt> total) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    context->save_for_backward({offsets});
    return repeat_op().call(rows, offsets, std::move(total));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto op =
        find_operator<decltype(repeat_backward_shapes)>("seqfuse::jagged_repeat_backward");
    return {op.call(gradients[0], context->get_saved_variables()[0]), Tensor(), Tensor()};
  }
};

Tensor to_dense_with_gradient(const Tensor& values, const Tensor& offsets, c10::SymInt max_len,
                              double padding) {
  return JaggedToDense::apply(values, offsets, std::move(max_len), padding);
}

Tensor from_dense_with_gradient(const Tensor& dense, const Tensor& offsets,
                                std::optional<c10::SymInt> total) {
  return DenseToJagged::apply(dense, offsets, std::move(total));
}

Tensor repeat_with_gradient(const Tensor& rows, const Tensor& offsets,
                            std::optional<c10::SymInt> total) {
  return JaggedRepeat::apply(rows, offsets, std::move(total));
}

std::optional<c10::SymInt> symbolic(const std::optional<int64_t>& size) {
  return size ? std::optional<c10::SymInt>(*size) : std::nullopt;
}

}  // namespace

Tensor lengths_to_offsets(const Tensor& lengths) {
  static const auto op = find_operator<decltype(lengths_shapes)>("seqfuse::lengths_to_offsets");
  return op.call(lengths);
}

Tensor jagged_to_dense(const Tensor& values, const Tensor& offsets, int64_t max_len,
                       double padding) {
  return to_dense_op().call(values, offsets, max_len, padding);
}

Tensor dense_to_jagged(const Tensor& dense, const Tensor& offsets, std::optional<int64_t> total) {
  return from_dense_op().call(dense, offsets, symbolic(total));
}

Tensor jagged_repeat(const Tensor& rows, const Tensor& offsets, std::optional<int64_t> total) {
  return repeat_op().call(rows, offsets, symbolic(total));
}

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  Definition(library, "lengths_to_offsets(Tensor lengths) -> Tensor")
      .kernels(&run_lengths, &lengths_shapes);
  Definition(library,
             "jagged_to_dense(Tensor values, Tensor offsets, SymInt max_len, float padding=0) -> "
             "Tensor")
      .kernels(&run_to_dense, &to_dense_shapes)
      .autograd(&to_dense_with_gradient);
  Definition(library,
             "jagged_to_dense_backward(Tensor ddense, Tensor offsets, SymInt total) -> Tensor")
      .kernels(&run_to_dense_backward, &to_dense_backward_shapes)
      .no_gradient();
  Definition(library, "dense_to_jagged(Tensor dense, Tensor offsets, SymInt? total=None) -> Tensor")
      .kernels(&run_from_dense, &from_dense_shapes)
      .autograd(&from_dense_with_gradient);
  Definition(library, "jagged_repeat(Tensor rows, Tensor offsets, SymInt? total=None) -> Tensor")
      .kernels(&run_repeat, &repeat_shapes)
      .autograd(&repeat_with_gradient);
  Definition(library, "jagged_repeat_backward(Tensor dvalues, Tensor offsets) -> Tensor")
      .kernels(&run_repeat_backward, &repeat_backward_shapes)
      .no_gradient();
}

}  // namespace seqfuse::ops
