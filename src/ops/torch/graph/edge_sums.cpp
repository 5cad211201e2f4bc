// spmm and sddmm: each is the other's gradient.
#include <torch/autograd.h>

#include "ops/kernels/graph/edge_ops.h"
#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
#include "ops/torch/dispatch.h"
#include "ops/torch/graph/graph.h"

namespace seqfuse::ops {
namespace {

using OptionalTensor = std::optional<Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void check_features(const Arg& arg, int64_t rows, const char* of) {
  check_rank(arg, 3, "[nodes, heads, d]");
  check_float(arg);
  TORCH_CHECK_VALUE(arg.tensor.size(0) == rows, label(arg), " is ", arg.tensor.sizes(),
                    ", but the graph has ", rows, " ", of, "; expected a row for each");
  TORCH_CHECK_VALUE(arg.tensor.size(2) > 0, label(arg), " is ", arg.tensor.sizes(),
                    "; expected one feature or more");
}

// transposed: sums over columns of the rows' features.
Tensor run_sums(const char* op, const OptionalTensor& weights_in, const Tensor& x_in,
                at::TensorList lists, at::IntArrayRef sizes, bool transposed) {
  const Arg arg{op, "x", x_in};
  const GraphView graph = checked_graph(op, lists, sizes, x_in.device());
  check_features(arg, sizes[transposed ? 0 : 1], transposed ? "rows" : "columns");
  const int64_t heads = x_in.size(1), dim = x_in.size(2);
  if (weights_in && weights_in->defined()) {
    check_like({op, "weights", *weights_in}, arg);
    check_sizes({op, "weights", *weights_in}, {graph.by_row.edges, heads},
                "[edges of the graph, heads of x]");
  }
  const DeviceGuard guard(x_in);
  const Tensor x = x_in.contiguous(), weights = contiguous_or_undefined(weights_in);
  const EdgeLists& direction = transposed ? graph.by_column : graph.by_row;
  Tensor out = at::empty({direction.rows, heads, dim}, x.options());
  Tensor workspace;
  if (x.is_cuda()) workspace = at::empty({direction.parts * heads * dim}, sum_options(x));
  SEQFUSE_RUN(x, edge_sums,
              {.graph = direction,
               .heads = heads,
               .dim = dim,
               .weights = data_or_null(weights),
               .x = x.const_data_ptr(),
               .out = out.mutable_data_ptr(),
               .workspace = x.is_cuda() ? workspace.mutable_data_ptr<float>() : nullptr},
              dtype_of(x));
  return out;
}

Tensor run_spmm(const OptionalTensor& weights, const Tensor& x, at::TensorList lists,
                at::IntArrayRef sizes) {
  return run_sums("spmm", weights, x, lists, sizes, false);
}

Tensor run_spmm_backward(const Tensor& dout, const OptionalTensor& weights, at::TensorList lists,
                         at::IntArrayRef sizes) {
  return run_sums("spmm_backward", weights, dout, lists, sizes, true);
}

Tensor run_sddmm(const Tensor& a_in, const Tensor& b_in, at::TensorList lists,
                 at::IntArrayRef sizes) {
  const Arg arg_a{"sddmm", "a", a_in}, arg_b{"sddmm", "b", b_in};
  const GraphView graph = checked_graph("sddmm", lists, sizes, a_in.device());
  check_features(arg_a, sizes[0], "rows");
  check_like(arg_b, arg_a);
  check_features(arg_b, sizes[1], "columns");
  TORCH_CHECK_VALUE(b_in.sizes().slice(1) == a_in.sizes().slice(1), "sddmm: b is ", b_in.sizes(),
                    " but a is ", a_in.sizes(), "; heads and features must match");
  const DeviceGuard guard(a_in);
  const Tensor a = a_in.contiguous(), b = b_in.contiguous();
  Tensor out = at::empty({graph.by_row.edges, a.size(1)}, a.options());
  SEQFUSE_RUN(a, edge_dots,
              {.graph = graph.by_row,
               .heads = a.size(1),
               .dim = a.size(2),
               .a = a.const_data_ptr(),
               .b = b.const_data_ptr(),
               .out = out.mutable_data_ptr()},
              dtype_of(a));
  return out;
}

Tensor spmm_shapes(const OptionalTensor&, const Tensor& x, at::TensorList,
                   c10::SymIntArrayRef sizes) {
  return empty_shape({sizes[0], x.sym_size(1), x.sym_size(2)}, x.options());
}

Tensor spmm_backward_shapes(const Tensor& dout, const OptionalTensor&, at::TensorList,
                            c10::SymIntArrayRef sizes) {
  return empty_shape({sizes[1], dout.sym_size(1), dout.sym_size(2)}, dout.options());
}

Tensor sddmm_shapes(const Tensor& a, const Tensor&, at::TensorList lists, c10::SymIntArrayRef) {
  return empty_shape({lists[kNeighbourList].sym_size(0), a.sym_size(1)}, a.options());
}

const auto& spmm_op() {
  static const auto op = find_operator<decltype(spmm_shapes)>("seqfuse::spmm");
  return op;
}
const auto& spmm_backward_op() {
  static const auto op = find_operator<decltype(spmm_backward_shapes)>("seqfuse::spmm_backward");
  return op;
}
const auto& sddmm_op() {
  static const auto op = find_operator<decltype(sddmm_shapes)>("seqfuse::sddmm");
  return op;
}

// tensors first, then the graph's lists.
void save_graph(AutogradContext* context, variable_list tensors, const GraphArguments& graph) {
  tensors.insert(tensors.end(), graph.lists.begin(), graph.lists.end());
  context->save_for_backward(std::move(tensors));
  context->saved_data["sizes"] = c10::SymIntArrayRef(graph.sizes);
}

// Saved tensors: two of the operator, then the lists.
struct SavedGraph {
  explicit SavedGraph(AutogradContext* context)
      : tensors(context->get_saved_variables()),
        lists(tensors.begin() + 2, tensors.end()),
        sizes(context->saved_data["sizes"].toSymIntVector()) {}

  variable_list tensors;
  std::vector<Tensor> lists;
  std::vector<c10::SymInt> sizes;
};

class Spmm : public torch::autograd::Function<Spmm> {
 public:
  static Tensor forward(AutogradContext* context, const OptionalTensor& weights, const Tensor& x,
                        const GraphArguments& graph) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const bool given = weights && weights->defined();
    // x is read for the gradient of the weights only.
    save_graph(context,
               {given ? *weights : Tensor(), given && weights->requires_grad() ? x : Tensor()},
               graph);
    context->saved_data["given"] = given;
    return spmm_op().call(weights, x, graph.lists, graph.sizes);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const SavedGraph saved(context);
    const Tensor &weights = saved.tensors[0], &x = saved.tensors[1], &dout = gradients[0];
    const bool given = context->saved_data["given"].toBool();
    Tensor dweights, dx;
    if (given && context->needs_input_grad(0))
      dweights = sddmm_op().call(dout, x, saved.lists, saved.sizes);
    if (context->needs_input_grad(given ? 1 : 0))
      dx = spmm_backward_op().call(dout, optional_of(weights), saved.lists, saved.sizes);
    return {dweights, dx, Tensor()};
  }
};

class Sddmm : public torch::autograd::Function<Sddmm> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& a, const Tensor& b,
                        const GraphArguments& graph) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    save_graph(context, {b.requires_grad() ? a : Tensor(), a.requires_grad() ? b : Tensor()},
               graph);
    return sddmm_op().call(a, b, graph.lists, graph.sizes);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const SavedGraph saved(context);
    const Tensor& dout = gradients[0];
    Tensor da, db;
    if (context->needs_input_grad(0))
      da = spmm_op().call(dout, saved.tensors[1], saved.lists, saved.sizes);
    if (context->needs_input_grad(1))
      db = spmm_backward_op().call(saved.tensors[0], dout, saved.lists, saved.sizes);
    return {da, db, Tensor()};
  }
};

Tensor spmm_with_gradient(const OptionalTensor& weights, const Tensor& x, at::TensorList lists,
                          c10::SymIntArrayRef sizes) {
  return Spmm::apply(weights, x, GraphArguments{lists.vec(), sizes.vec()});
}

Tensor sddmm_with_gradient(const Tensor& a, const Tensor& b, at::TensorList lists,
                           c10::SymIntArrayRef sizes) {
  return Sddmm::apply(a, b, GraphArguments{lists.vec(), sizes.vec()});
}

}  // namespace

Tensor spmm(const OptionalTensor& weights, const Tensor& x, const GraphTensors& graph) {
  const std::array<c10::SymInt, 3> sizes{graph.rows, graph.columns, graph.part_edges};
  return spmm_op().call(weights, x, graph.lists, sizes);
}

Tensor sddmm(const Tensor& a, const Tensor& b, const GraphTensors& graph) {
  const std::array<c10::SymInt, 3> sizes{graph.rows, graph.columns, graph.part_edges};
  return sddmm_op().call(a, b, graph.lists, sizes);
}

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  const std::string graph = kGraphSchema;
  Definition(library, "spmm(Tensor? weights, Tensor x, " + graph + ") -> Tensor")
      .kernels(&run_spmm, &spmm_shapes)
      .autograd(&spmm_with_gradient);
  Definition(library, "spmm_backward(Tensor dout, Tensor? weights, " + graph + ") -> Tensor")
      .kernels(&run_spmm_backward, &spmm_backward_shapes)
      .no_gradient();
  Definition(library, "sddmm(Tensor a, Tensor b, " + graph + ") -> Tensor")
      .kernels(&run_sddmm, &sddmm_shapes)
      .autograd(&sddmm_with_gradient);
}

}  // namespace seqfuse::ops
