#include "ops/kernels/jagged/jagged.h"

#include <torch/autograd.h>
#include <torch/types.h>

#include <numeric>

#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
#include "ops/torch/dispatch.h"
#include "ops/torch/jagged/jagged_rows.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

JaggedPartsParams::Part part_of(const Tensor& rows, const Tensor& offsets) {
  return {const_cast<void*>(rows.const_data_ptr()), offsets.const_data_ptr<int64_t>(),
          rows.stride(0)};
}

// parts[p] [T_p, D], offsets[p] [B + 1] int64 -> [sum T_p, D].
Tensor concat(const variable_list& parts, const variable_list& offsets) {
  const DeviceGuard guard(parts[0]);
  variable_list inputs;  // keeps copies alive
  JaggedPartsParams params{.batch = offsets[0].numel() - 1,
                           .dim = parts[0].size(1),
                           .element_size = parts[0].element_size(),
                           .values_stride = parts[0].size(1)};
  int64_t rows = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    inputs.push_back(with_unit_last_stride(parts[p]));
    params.parts.push_back(part_of(inputs.back(), offsets[p]));
    rows += parts[p].size(0);
  }
  Tensor values = at::empty({rows, params.dim}, parts[0].options());
  params.values = values.mutable_data_ptr();
  params.total = rows;
  SEQFUSE_RUN(values, jagged_concat, params);
  return values;
}

// The inverse of concat. rows: of each part.
variable_list split(const Tensor& values_in, const variable_list& offsets,
                    const std::vector<int64_t>& rows) {
  const DeviceGuard guard(values_in);
  const Tensor values = with_unit_last_stride(values_in);
  JaggedPartsParams params{.values = const_cast<void*>(values.const_data_ptr()),
                           .batch = offsets[0].numel() - 1,
                           .dim = values.size(1),
                           .element_size = values.element_size(),
                           .values_stride = values.stride(0),
                           .total = values.size(0)};
  variable_list parts;
  for (size_t p = 0; p < offsets.size(); ++p) {
    parts.push_back(at::empty({rows[p], params.dim}, values.options()));
    params.parts.push_back(part_of(parts.back(), offsets[p]));
  }
  SEQFUSE_RUN(values, jagged_split, params);
  return parts;
}

// On a GPU the parts are kernel parameters, so their number is limited.
void check_num_parts(const char* op, size_t parts, const Tensor& values) {
  TORCH_CHECK_VALUE(values.is_cpu() || static_cast<int64_t>(parts) <= kMaxJaggedParts, op, ": ",
                    parts, " parts on ", values.device(), "; expected at most ", kMaxJaggedParts,
                    " on CUDA");
}

// Takes the batch from offsets[0] (rows of `of`) and checks all others against it.
void check_same_batch(const char* op, const std::vector<Tensor>& offsets) {
  for (size_t p = 1; p < offsets.size(); ++p) {
    TORCH_CHECK_VALUE(offsets[p].numel() == offsets[0].numel(), op, ": offsets of part ", p, " is ",
                      offsets[p].sizes(), " but that of part 0 is ", offsets[0].sizes(),
                      "; all parts must have the same number of sequences");
  }
}

Tensor run_concat(at::TensorList parts, at::TensorList offsets) {
  TORCH_CHECK_VALUE(!parts.empty() && parts.size() == offsets.size(),
                    "jagged_concat: ", parts.size(), " parts and ", offsets.size(),
                    " offsets; expected the same number, at least 1");
  variable_list checked;
  for (size_t p = 0; p < parts.size(); ++p) {
    const Arg part{"jagged_concat", "a part", parts[p]};
    check_rank(part, 2, "[T, D]");
    check_device(part);
    check_sizes(part, {parts[p].size(0), parts[0].size(1)}, "the columns of the first part");
    check_like(part, {"jagged_concat", "the first part", parts[0]});
    checked.push_back(checked_offsets({"jagged_concat", "offsets", offsets[p]}, parts[p].size(0),
                                      "its part", parts[0].device()));
  }
  check_same_batch("jagged_concat", checked);
  check_num_parts("jagged_concat", parts.size(), parts[0]);
  return concat(parts.vec(), checked);
}

variable_list run_split(const Tensor& values, at::TensorList part_offsets,
                        at::IntArrayRef part_rows) {
  const Arg arg{"jagged_split", "values", values};
  check_rank(arg, 2, "[T, D]");
  check_device(arg);
  TORCH_CHECK_VALUE(!part_offsets.empty(),
                    "jagged_split: there are no part_offsets; expected at least 1");
  TORCH_CHECK_VALUE(
      part_rows.size() == part_offsets.size() || (part_rows.empty() && values.is_cpu()),
      "jagged_split: ", part_rows.size(), " part_rows for ", part_offsets.size(),
      " part_offsets; expected one each",
      values.is_cpu() ? ", or none" : ": on CUDA offsets are not read");
  variable_list checked;
  std::vector<int64_t> rows;
  for (size_t p = 0; p < part_offsets.size(); ++p) {
    const Arg offsets_arg{"jagged_split", "part_offsets", part_offsets[p]};
    check_on(offsets_arg, values.device());
    TORCH_CHECK_VALUE(part_offsets[p].dim() == 1 && part_offsets[p].numel() > 0, label(offsets_arg),
                      " is ", part_offsets[p].sizes(), "; expected [B + 1], starting with 0");
    rows.push_back(
        total_rows(offsets_arg, part_rows.empty() ? std::nullopt : std::optional(part_rows[p])));
    checked.push_back(checked_offsets(offsets_arg, rows.back(), "its part", values.device()));
  }
  check_same_batch("jagged_split", checked);
  check_num_parts("jagged_split", part_offsets.size(), values);
  const int64_t sum = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  TORCH_CHECK_VALUE(sum == values.size(0), "jagged_split: part_offsets end with ", sum,
                    " rows in all but values has ", values.size(0), "; they must be equal");
  return split(values, checked, rows);
}

// Shape functions need rows: offsets have no values here.

Tensor concat_shapes(at::TensorList parts, at::TensorList) {
  c10::SymInt rows = 0;
  for (const Tensor& part : parts) rows += part.sym_size(0);
  return empty_shape({rows, parts[0].sym_size(1)}, parts[0].options());
}

variable_list split_shapes(const Tensor& values, at::TensorList part_offsets,
                           c10::SymIntArrayRef part_rows) {
  TORCH_CHECK_VALUE(part_rows.size() == part_offsets.size(), "jagged_split: ", part_rows.size(),
                    " part_rows for ", part_offsets.size(),
                    " part_offsets; expected one each where shapes are traced");
  variable_list parts;
  for (const c10::SymInt& rows : part_rows) {
    parts.push_back(empty_shape({rows, values.sym_size(1)}, values.options()));
  }
  return parts;
}

const auto& concat_op() {
  static const auto op = find_operator<decltype(concat_shapes)>("seqfuse::jagged_concat");
  return op;
}

const auto& split_op() {
  static const auto op = find_operator<decltype(split_shapes)>("seqfuse::jagged_split");
  return op;
}

// The gradient of concat is split, and vice versa.
class JaggedConcat : public torch::autograd::Function<JaggedConcat> {
 public:
  static Tensor forward(AutogradContext* context, at::TensorList parts, at::TensorList offsets) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    Tensor values = concat_op().call(parts, offsets);
    std::vector<c10::SymInt> rows;
    for (const Tensor& part : parts) rows.push_back(part.sym_size(0));
    context->saved_data["rows"] = c10::SymIntArrayRef(rows);
    context->save_for_backward(offsets.vec());
    return values;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list offsets = context->get_saved_variables();
    variable_list dparts =
        split_op().call(gradients[0], offsets, context->saved_data["rows"].toSymIntVector());
    dparts.resize(2 * offsets.size());  // none for the offsets
    return dparts;
  }
};

class JaggedSplit : public torch::autograd::Function<JaggedSplit> {
 public:
  static variable_list forward(AutogradContext* context, const Tensor& values,
                               at::TensorList offsets, c10::SymIntArrayRef rows) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    context->save_for_backward(offsets.vec());
    return split_op().call(values, offsets, rows);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list offsets = context->get_saved_variables();
    variable_list dvalues(2 + offsets.size());  // none for the offsets and rows
    dvalues[0] = concat_op().call(gradients, offsets);
    return dvalues;
  }
};

Tensor concat_with_gradient(at::TensorList parts, at::TensorList offsets) {
  return JaggedConcat::apply(parts, offsets);
}

variable_list split_with_gradient(const Tensor& values, at::TensorList part_offsets,
                                  c10::SymIntArrayRef part_rows) {
  return JaggedSplit::apply(values, part_offsets, part_rows);
}

}  // namespace

Tensor jagged_concat(const std::vector<Tensor>& parts, const std::vector<Tensor>& offsets) {
  return concat_op().call(parts, offsets);
}

std::vector<Tensor> jagged_split(const Tensor& values, const std::vector<Tensor>& part_offsets,
                                 const std::vector<int64_t>& part_rows) {
  return split_op().call(values, part_offsets, c10::fromIntArrayRefSlow(part_rows));
}

// Composed of PyTorch operators, which provide tracing and gradients.
Tensor interleave(const Tensor& a, const Tensor& b) {
  const Arg a_arg{"interleave", "a", a}, b_arg{"interleave", "b", b};
  check_rank(a_arg, 2, "[T, D]");
  TORCH_CHECK_VALUE(b.sym_sizes() == a.sym_sizes(), label(b_arg), " is ", b.sym_sizes(),
                    "; expected ", a.sym_sizes(), " (the shape of a)");
  check_like(b_arg, a_arg);
  return at::stack({a, b}, 1).flatten(0, 1);
}

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  Definition(library, "jagged_concat(Tensor[] parts, Tensor[] offsets) -> Tensor")
      .kernels(&run_concat, &concat_shapes)
      .autograd(&concat_with_gradient);
  Definition(
      library,
      "jagged_split(Tensor values, Tensor[] part_offsets, SymInt[] part_rows=[]) -> Tensor[]")
      .kernels(&run_split, &split_shapes)
      .autograd(&split_with_gradient);
  library.def("interleave(Tensor a, Tensor b) -> Tensor", {at::Tag::pt2_compliant_tag});
  library.impl("interleave",
               torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, &interleave));
}

}  // namespace seqfuse::ops
