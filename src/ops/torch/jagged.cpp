#include "ops/kernels/jagged.h"

#include <torch/library.h>
#include <torch/torch.h>

#include <numeric>

#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
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

// The inverse of concat. rows: of the parts.
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

// total: rows of the result. Those beyond the dense tensor's length become 0.
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

class JaggedConcat : public torch::autograd::Function<JaggedConcat> {
 public:
  static Tensor forward(AutogradContext* context, at::TensorList parts,
                        const variable_list& offsets) {
    context->save_for_backward(offsets);
    std::vector<int64_t> rows;
    for (const Tensor& part : parts) rows.push_back(part.size(0));
    context->saved_data["rows"] = rows;
    return concat(parts.vec(), offsets);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list offsets = context->get_saved_variables();
    variable_list dparts = split(gradients[0], offsets, context->saved_data["rows"].toIntVector());
    dparts.resize(2 * offsets.size());  // none for the offsets
    return dparts;
  }
};

class JaggedSplit : public torch::autograd::Function<JaggedSplit> {
 public:
  static variable_list forward(AutogradContext* context, const Tensor& values,
                               const variable_list& offsets, const std::vector<int64_t>& rows) {
    context->save_for_backward(offsets);
    return split(values, offsets, rows);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list offsets = context->get_saved_variables();
    variable_list dvalues(2 + offsets.size());  // none for the offsets and rows
    dvalues[0] = concat(gradients, offsets);
    return dvalues;
  }
};

class JaggedToDense : public torch::autograd::Function<JaggedToDense> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& values, const Tensor& offsets,
                        int64_t max_len, double padding) {
    context->save_for_backward({offsets});
    context->saved_data["total"] = values.size(0);
    return to_dense(values, offsets, max_len, padding);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Tensor dvalues = from_dense(gradients[0], context->get_saved_variables()[0],
                                      context->saved_data["total"].toInt());
    return {dvalues, Tensor(), Tensor(), Tensor()};
  }
};

class DenseToJagged : public torch::autograd::Function<DenseToJagged> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& dense, const Tensor& offsets,
                        int64_t total) {
    context->save_for_backward({offsets});
    context->saved_data["max_len"] = dense.size(1);
    return from_dense(dense, offsets, total);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Tensor ddense = to_dense(gradients[0], context->get_saved_variables()[0],
                                   context->saved_data["max_len"].toInt(), 0);
    return {ddense, Tensor(), Tensor()};
  }
};

class JaggedRepeat : public torch::autograd::Function<JaggedRepeat> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& rows_in, const Tensor& offsets,
                        int64_t total) {
    const DeviceGuard guard(rows_in);
    context->save_for_backward({offsets});
    const Tensor rows = with_unit_last_stride(rows_in);
    const int64_t batch = rows.size(0), dim = rows.size(1);
    Tensor values = at::empty({total, dim}, rows.options());
    SEQFUSE_RUN(rows, jagged_repeat_forward,
                {.rows = rows.const_data_ptr(),
                 .offsets = offsets.const_data_ptr<int64_t>(),
                 .values = values.mutable_data_ptr(),
                 .batch = batch,
                 .dim = dim,
                 .element_size = rows.element_size(),
                 .rows_stride = rows.stride(0),
                 .values_stride = dim,
                 .total = total});
    return values;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Tensor offsets = context->get_saved_variables()[0];
    const DeviceGuard guard(offsets);
    const Tensor dvalues = with_unit_last_stride(gradients[0]);
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
    return {drows, Tensor(), Tensor()};
  }
};

// On a GPU the parts are listed in a kernel's parameters.
void check_num_parts(const char* op, size_t parts, const Tensor& values) {
  TORCH_CHECK_VALUE(values.is_cpu() || static_cast<int64_t>(parts) <= kMaxJaggedParts, op, ": ",
                    parts, " parts on ", values.device(), "; expected at most ", kMaxJaggedParts,
                    " on CUDA");
}

// The rows that offsets end with: read from them on the CPU, where total, if given, must agree; on
// a GPU they are what total says.
int64_t total_rows(const Arg& offsets, const std::optional<int64_t>& total) {
  if (!offsets.tensor.is_cpu()) {
    TORCH_CHECK_VALUE(total && *total >= 0, offsets.op,
                      ": the number of rows of the result was not given; on CUDA pass it as total, "
                      "since reading ",
                      offsets.name, " would wait for the GPU");
    return *total;
  }
  const int64_t rows = offsets.tensor[-1].item<int64_t>();
  TORCH_CHECK_VALUE(!total || *total == rows, offsets.op, ": total is ", *total, " but ",
                    offsets.name, " ends with ", rows, "; they must be equal");
  return rows;
}

// offsets[0] (rows of `of`), which gives the batch, and all others checked against it.
void check_same_batch(const char* op, const std::vector<Tensor>& offsets) {
  for (size_t p = 1; p < offsets.size(); ++p) {
    TORCH_CHECK_VALUE(offsets[p].numel() == offsets[0].numel(), op, ": offsets of part ", p, " is ",
                      offsets[p].sizes(), " but that of part 0 is ", offsets[0].sizes(),
                      "; all parts must have the same number of sequences");
  }
}

}  // namespace

Tensor lengths_to_offsets(const Tensor& lengths) {
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

Tensor jagged_concat(const std::vector<Tensor>& parts, const std::vector<Tensor>& offsets) {
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
  return JaggedConcat::apply(at::TensorList(parts), checked);
}

std::vector<Tensor> jagged_split(const Tensor& values, const std::vector<Tensor>& part_offsets,
                                 const std::vector<int64_t>& part_rows) {
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
  return JaggedSplit::apply(values, checked, rows);
}

Tensor jagged_to_dense(const Tensor& values, const Tensor& offsets, int64_t max_len,
                       double padding) {
  const Arg arg{"jagged_to_dense", "values", values};
  check_rank(arg, 2, "[T, D]");
  check_device(arg);
  TORCH_CHECK_VALUE(max_len >= 0, "jagged_to_dense: max_len is ", max_len, "; expected 0 or more");
  const Tensor checked = checked_offsets({"jagged_to_dense", "offsets", offsets}, values.size(0),
                                         "values", values.device());
  return JaggedToDense::apply(values, checked, max_len, padding);
}

Tensor dense_to_jagged(const Tensor& dense, const Tensor& offsets, std::optional<int64_t> total) {
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
  return DenseToJagged::apply(dense, checked, rows);
}

Tensor jagged_repeat(const Tensor& rows, const Tensor& offsets, std::optional<int64_t> total) {
  const Arg arg{"jagged_repeat", "rows", rows}, offsets_arg{"jagged_repeat", "offsets", offsets};
  check_rank(arg, 2, "[B, D]");
  check_float(arg);
  check_on(offsets_arg, rows.device());
  check_sizes(offsets_arg, {rows.size(0) + 1}, "[B + 1] for rows [B, D]");
  const int64_t result_rows = total_rows(offsets_arg, total);
  return JaggedRepeat::apply(
      rows, checked_offsets(offsets_arg, result_rows, "the result", rows.device()), result_rows);
}

Tensor interleave(const Tensor& a, const Tensor& b) {
  const Arg a_arg{"interleave", "a", a}, b_arg{"interleave", "b", b};
  check_rank(a_arg, 2, "[T, D]");
  check_sizes(b_arg, a.sizes(), "the shape of a");
  check_like(b_arg, a_arg);
  return at::stack({a, b}, 1).flatten(0, 1);
}

}  // namespace seqfuse::ops

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  using namespace seqfuse::ops;
  library.def("lengths_to_offsets(Tensor lengths) -> Tensor", &lengths_to_offsets);
  library.def("jagged_concat(Tensor[] parts, Tensor[] offsets) -> Tensor", &jagged_concat);
  library.def("jagged_split(Tensor values, Tensor[] part_offsets, int[] part_rows=[]) -> Tensor[]",
              &jagged_split);
  library.def(
      "jagged_to_dense(Tensor values, Tensor offsets, int max_len, float padding) -> Tensor",
      &jagged_to_dense);
  library.def("dense_to_jagged(Tensor dense, Tensor offsets, int? total=None) -> Tensor",
              &dense_to_jagged);
  library.def("jagged_repeat(Tensor rows, Tensor offsets, int? total=None) -> Tensor",
              &jagged_repeat);
  library.def("interleave(Tensor a, Tensor b) -> Tensor", &interleave);
}
