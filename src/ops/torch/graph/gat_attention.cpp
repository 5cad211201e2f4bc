#include <torch/autograd.h>

#include "ops/kernels/graph/edge_ops.h"
#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
#include "ops/torch/device_seeds.h"
#include "ops/torch/dispatch.h"
#include "ops/torch/graph/graph.h"

namespace seqfuse::ops {
namespace gat_attention_op {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kGat = "gat_attention";

void check_arguments(const Tensor& left, const Tensor& right, const Tensor& x,
                     at::IntArrayRef sizes, double dropout) {
  const Arg arg_left{kGat, "a_l", left}, arg_right{kGat, "a_r", right}, arg_x{kGat, "x", x};
  check_rank(arg_x, 3, "[columns, heads, d]");
  check_float(arg_x);
  TORCH_CHECK_VALUE(x.size(0) == sizes[1], label(arg_x), " is ", x.sizes(), ", but the graph has ",
                    sizes[1], " columns; expected a row for each");
  TORCH_CHECK_VALUE(x.size(2) > 0, label(arg_x), " is ", x.sizes(),
                    "; expected one feature or more");
  TORCH_CHECK_VALUE(x.is_cpu() || x.size(2) <= kMostGatDim, label(arg_x), " is ", x.sizes(),
                    "; on CUDA, a head has at most ", kMostGatDim, " features: use more heads");
  check_like(arg_left, arg_x);
  check_sizes(arg_left, {sizes[0], x.size(1)}, "[rows of the graph, heads of x]");
  check_like(arg_right, arg_x);
  check_sizes(arg_right, {sizes[1], x.size(1)}, "[columns of the graph, heads of x]");
  check_dropout_probability(kGat, dropout);
}

// left, right and x are contiguous.
GatParams params_of(const Tensor& left, const Tensor& right, const Tensor& x,
                    const GraphView& graph, double negative_slope, double dropout, int64_t seed) {
  return {.graph = graph,
          .heads = x.size(1),
          .dim = x.size(2),
          .negative_slope = negative_slope,
          .dropout = dropout,
          .seed = kernel_seed(x, seed),
          .left = left.const_data_ptr(),
          .right = right.const_data_ptr(),
          .x = x.const_data_ptr(),
          .out = nullptr,
          .lse = nullptr};
}

// The output and the log-sum-exp of each row and head.
std::tuple<Tensor, Tensor> run_forward(const Tensor& left_in, const Tensor& right_in,
                                       const Tensor& x_in, at::TensorList lists,
                                       at::IntArrayRef sizes, double negative_slope, double dropout,
                                       int64_t seed) {
  const GraphView graph = checked_graph(kGat, lists, sizes, x_in.device());
  check_arguments(left_in, right_in, x_in, sizes, dropout);
  const DeviceGuard guard(x_in);
  const Tensor left = left_in.contiguous(), right = right_in.contiguous(), x = x_in.contiguous();
  Tensor out = at::empty({sizes[0], x.size(1), x.size(2)}, x.options());
  Tensor lse = at::empty({sizes[0], x.size(1)}, sum_options(x));
  GatParams params = params_of(left, right, x, graph, negative_slope, dropout, seed);
  params.out = out.mutable_data_ptr();
  params.lse = lse.mutable_data_ptr();
  Tensor workspace;
  if (x.is_cuda()) {
    workspace = at::empty({gat_forward_workspace(params)}, sum_options(x));
    params.workspace = workspace.mutable_data_ptr<float>();
  }
  SEQFUSE_RUN(x, gat_forward, params, dtype_of(x));
  return {out, lse};
}

std::tuple<Tensor, Tensor> forward_shapes(const Tensor&, const Tensor&, const Tensor& x,
                                          at::TensorList, c10::SymIntArrayRef sizes, double, double,
                                          c10::SymInt) {
  return {empty_shape({sizes[0], x.sym_size(1), x.sym_size(2)}, x.options()),
          empty_shape({sizes[0], x.sym_size(1)}, sum_options(x))};
}

using Gradients = std::tuple<Tensor, Tensor, Tensor>;

Gradients run_backward(const Tensor& dout_in, const Tensor& left_in, const Tensor& right_in,
                       const Tensor& x_in, const Tensor& out, const Tensor& lse,
                       at::TensorList lists, at::IntArrayRef sizes, double negative_slope,
                       double dropout, int64_t seed) {
  const GraphView graph = checked_graph(kGat, lists, sizes, x_in.device());
  const DeviceGuard guard(x_in);
  const Tensor left = left_in.contiguous(), right = right_in.contiguous(), x = x_in.contiguous(),
               dout = dout_in.contiguous();
  Tensor dleft = at::empty_like(left), dright = at::empty_like(right), dx = at::empty_like(x);
  GatParams params = params_of(left, right, x, graph, negative_slope, dropout, seed);
  params.out = const_cast<void*>(out.const_data_ptr());
  params.lse = const_cast<void*>(lse.const_data_ptr());
  params.dout = dout.const_data_ptr();
  params.dleft = dleft.mutable_data_ptr();
  params.dright = dright.mutable_data_ptr();
  params.dx = dx.mutable_data_ptr();
  Tensor workspace;
  if (x.is_cuda()) {
    workspace = at::empty({gat_backward_workspace(params)}, sum_options(x));
    params.workspace = workspace.mutable_data_ptr<float>();
  }
  SEQFUSE_RUN(x, gat_backward, params, dtype_of(x));
  return {dleft, dright, dx};
}

Gradients backward_shapes(const Tensor&, const Tensor& left, const Tensor& right, const Tensor& x,
                          const Tensor&, const Tensor&, at::TensorList, c10::SymIntArrayRef, double,
                          double, c10::SymInt) {
  return {empty_like_shape(left), empty_like_shape(right), empty_like_shape(x)};
}

const auto& forward_op() {
  static const auto op = find_operator<decltype(forward_shapes)>("seqfuse::gat_attention_forward");
  return op;
}

struct GatOptions {
  double negative_slope, dropout;
  c10::SymInt seed;
};

class GatAttention : public torch::autograd::Function<GatAttention> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& left, const Tensor& right,
                        const Tensor& x, const GraphArguments& graph, const GatOptions& options) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto [out, lse] =
        forward_op().call(left, right, x, graph.lists, graph.sizes, options.negative_slope,
                          options.dropout, options.seed);
    variable_list saved{left, right, x, out, lse};
    saved.insert(saved.end(), graph.lists.begin(), graph.lists.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["sizes"] = c10::SymIntArrayRef(graph.sizes);
    context->saved_data["negative_slope"] = options.negative_slope;
    context->saved_data["dropout"] = options.dropout;
    context->saved_data["seed"] = options.seed;
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto op =
        find_operator<decltype(backward_shapes)>("seqfuse::gat_attention_backward");
    const auto t = context->get_saved_variables();
    const std::vector<Tensor> lists(t.begin() + 5, t.end());
    const std::vector<c10::SymInt> sizes = context->saved_data["sizes"].toSymIntVector();
    auto [dleft, dright, dx] =
        op.call(gradients[0], t[0], t[1], t[2], t[3], t[4], lists, sizes,
                context->saved_data["negative_slope"].toDouble(),
                context->saved_data["dropout"].toDouble(), context->saved_data["seed"].toSymInt());
    return {dleft, dright, dx, Tensor(), Tensor()};
  }
};

Tensor without_gradient(const Tensor& left, const Tensor& right, const Tensor& x,
                        at::TensorList lists, c10::SymIntArrayRef sizes, double negative_slope,
                        double dropout, c10::SymInt seed) {
  return std::get<0>(
      forward_op().call(left, right, x, lists, sizes, negative_slope, dropout, std::move(seed)));
}

Tensor with_gradient(const Tensor& left, const Tensor& right, const Tensor& x, at::TensorList lists,
                     c10::SymIntArrayRef sizes, double negative_slope, double dropout,
                     c10::SymInt seed) {
  return GatAttention::apply(left, right, x, GraphArguments{lists.vec(), sizes.vec()},
                             GatOptions{negative_slope, dropout, std::move(seed)});
}

}  // namespace
}  // namespace gat_attention_op

Tensor gat_attention(const Tensor& left, const Tensor& right, const Tensor& x,
                     const GraphTensors& graph, double negative_slope, double dropout,
                     int64_t seed) {
  static const auto op =
      find_operator<decltype(gat_attention_op::with_gradient)>("seqfuse::gat_attention");
  const std::array<c10::SymInt, 3> sizes{graph.rows, graph.columns, graph.part_edges};
  return op.call(left, right, x, graph.lists, sizes, negative_slope, dropout, seed);
}

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  using namespace gat_attention_op;
  const std::string inputs = "Tensor a_l, Tensor a_r, Tensor x";
  const std::string options =
      std::string(kGraphSchema) + ", float negative_slope, float dropout, SymInt seed";
  Definition(library, "gat_attention(" + inputs + ", " + options + ") -> Tensor")
      .made_of_others(&without_gradient)
      .autograd(&with_gradient);
  Definition(library, "gat_attention_forward(" + inputs + ", " + options + ") -> (Tensor, Tensor)")
      .kernels(&run_forward, &forward_shapes)
      .no_gradient();
  Definition(library, "gat_attention_backward(Tensor dout, " + inputs +
                          ", Tensor out, Tensor lse, " + options + ") -> (Tensor, Tensor, Tensor)")
      .kernels(&run_backward, &backward_shapes)
      .no_gradient();
}

}  // namespace seqfuse::ops
