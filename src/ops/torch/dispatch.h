// Defines and calls dispatcher operators, torch.ops.seqfuse.*.
//
// An operator x has kernels for CPU and CUDA, which check their arguments, and a shape function for
// the meta device, which FakeTensor (torch.compile) runs: it reads no values, and its sizes may be
// symbolic. Differentiable operators also have an autograd function, which calls the operator again
// below autograd, and x_backward in the backward pass. If the backward pass needs more than
// arguments and result, x_forward returns it. x_forward and x_backward are internal: they trust ids
// that x checked and are not differentiable.
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

// Defines one operator from its schema; the members add implementations.
class Definition {
 public:
  Definition(torch::Library& library, const std::string& schema)
      : library_(library), name_(schema.substr(0, schema.find('('))) {
    library.def(schema.c_str(), {at::Tag::pt2_compliant_tag});
  }

  // kernel: runs on both devices through SEQFUSE_RUN. shapes: makes its outputs, without values.
  template <class Kernel, class Shapes>
  Definition& kernels(Kernel* kernel, Shapes* shapes) {
    add(c10::DispatchKey::CPU, kernel);
    add(c10::DispatchKey::CUDA, kernel);
    return add(c10::DispatchKey::Meta, shapes);
  }

  // The same for CUDA only.
  template <class Kernel, class Shapes>
  Definition& cuda_kernel(Kernel* kernel, Shapes* shapes) {
    add(c10::DispatchKey::CUDA, kernel);
    return add(c10::DispatchKey::Meta, shapes);
  }

  // One function for every device, made of other operators, below autograd.
  template <class Function>
  Definition& made_of_others(Function* function) {
    return add(c10::DispatchKey::CompositeExplicitAutograd, function);
  }

  template <class Function>
  Definition& autograd(Function* function) {
    return add(c10::DispatchKey::Autograd, function);
  }

  // Makes differentiation an error instead of returning no gradient; so also second derivatives.
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

// Looks up an operator. Signature: that of its shape or autograd function, with symbolic sizes.
template <class Signature>
c10::TypedOperatorHandle<Signature> find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

// A saved tensor as an optional argument: none if undefined.
inline std::optional<Tensor> optional_of(const Tensor& tensor) {
  return tensor.defined() ? std::optional<Tensor>(tensor) : std::nullopt;
}

// In a backward pass: which gradients are wanted, by forward's variables in this order. Undefined
// variables have no edge in the graph and are skipped in the count.
template <size_t n>
std::array<bool, n> wanted_gradients(const torch::autograd::AutogradContext* context,
                                     const std::array<Tensor, n>& variables) {
  std::array<bool, n> wanted{};
  size_t edge = 0;
  for (size_t i = 0; i < n; ++i)
    if (variables[i].defined()) wanted[i] = context->needs_input_grad(edge++);
  return wanted;
}

// A contiguous output, for shape functions. Calls that mix meta and another device get here, too.
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
