// Operators of the dispatcher, torch.ops.seqfuse.*: defining them and calling them through it.
//
// An operator x has kernels for the CPU and CUDA, which check their arguments, and a shape function
// for the meta device, which FakeTensor (torch.compile) runs: it reads no values, and its sizes may
// be symbolic. Differentiable operators also have an autograd function, which calls the operator
// again below autograd, and x_backward in the backward pass. Where the backward pass needs more
// than arguments and result, x_forward returns it. x_forward and x_backward are internal: they
// trust ids that x checked, and have no derivative of their own.
#pragma once

#include <torch/autograd.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>
#include <torch/types.h>

#include <array>
#include <optional>
#include <string>

#include "ops/torch/checks.h"

namespace seqfuse::ops {

// The definition of one operator, from its schema; the members add implementations.
class Definition {
 public:
  Definition(torch::Library& library, const std::string& schema)
      : library_(library), name_(schema.substr(0, schema.find('('))) {
    library.def(schema.c_str(), {at::Tag::pt2_compliant_tag});
  }

  // kernel: by SEQFUSE_RUN for both devices. shapes: its outputs, without values.
  template <class Kernel, class Shapes>
  Definition& kernels(Kernel* kernel, Shapes* shapes) {
    add(c10::DispatchKey::CPU, kernel);
    add(c10::DispatchKey::CUDA, kernel);
    return add(c10::DispatchKey::Meta, shapes);
  }

  // The same, for CUDA alone.
  template <class Kernel, class Shapes>
  Definition& cuda_kernel(Kernel* kernel, Shapes* shapes) {
    add(c10::DispatchKey::CUDA, kernel);
    return add(c10::DispatchKey::Meta, shapes);
  }

  // For every device: made of other operators below autograd.
  template <class Function>
  Definition& made_of_others(Function* function) {
    return add(c10::DispatchKey::CompositeExplicitAutograd, function);
  }

  template <class Function>
  Definition& autograd(Function* function) {
    return add(c10::DispatchKey::Autograd, function);
  }

  // Asking for its gradient is an error, rather than none: so are second derivatives.
  Definition& no_gradient() {
    return add(c10::DispatchKey::Autograd, torch::autograd::autogradNotImplementedFallback());
  }

 private:
  template <class Function>
  Definition& add(c10::DispatchKey key, Function&& function) {
    library_.impl(name_.c_str(), torch::dispatch(key, std::forward<Function>(function)));
    return *this;
  }

  torch::Library& library_;
  std::string name_;
};

// The operator to call. Signature: of its shape or autograd function, whose sizes are symbolic.
template <class Signature>
c10::TypedOperatorHandle<Signature> find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

// A saved tensor as an optional argument: none where it is undefined.
inline std::optional<Tensor> optional_of(const Tensor& tensor) {
  return tensor.defined() ? std::optional<Tensor>(tensor) : std::nullopt;
}

// In a backward pass: which gradients it is asked for, of the variables that forward took in this
// order. Undefined ones have no edge in the graph, so that they do not count among its edges.
template <size_t n>
std::array<bool, n> wanted_gradients(const torch::autograd::AutogradContext* context,
                                     const std::array<Tensor, n>& variables) {
  std::array<bool, n> wanted{};
  size_t edge = 0;
  for (size_t i = 0; i < n; ++i)
    if (variables[i].defined()) wanted[i] = context->needs_input_grad(edge++);
  return wanted;
}

// Shapes: an output, contiguous. Calls with arguments on meta and on another device come here, too.
inline Tensor empty_shape(c10::SymIntArrayRef sizes, const at::TensorOptions& options) {
  TORCH_CHECK_VALUE(options.device().is_meta(), "an operator of seqfuse was given tensors on ",
                    options.device(), " and on meta, which have no values; all arguments must be ",
                    "on one device");
  return at::empty_symint(sizes, options);
}
inline Tensor empty_like_shape(const Tensor& x) {
  return empty_shape(x.sym_sizes(), x.options());
}

}  // namespace seqfuse::ops
