// Argument checks shared by the torch bindings. A failed check throws c10::ValueError (a
// c10::Error; ValueError in Python) with operator, argument, given value and expected value:
//   layer_norm: weight is [5]; expected [7] (the columns of its input)
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/dtype.h"

namespace seqfuse::ops {

using at::Tensor;

// A named tensor argument, for messages: Arg{"hstu_attention", "q", q}.
struct Arg {
  const char* op;
  const char* name;
  const Tensor& tensor;
};

// "layer_norm: weight", the start of every message.
inline std::string label(const Arg& arg) {
  return c10::str(arg.op, ": ", arg.name);
}

// layout: the dimensions by name, "[T, D]".
inline void check_rank(const Arg& arg, int64_t rank, const char* layout) {
  TORCH_CHECK_VALUE(arg.tensor.dim() == rank, label(arg), " is ", arg.tensor.sizes(), " (",
                    arg.tensor.dim(), "-D); expected ", layout, " (", rank, "-D)");
}

// why: the source of the expected sizes, "the last dimension of x".
inline void check_sizes(const Arg& arg, at::IntArrayRef sizes, const char* why) {
  TORCH_CHECK_VALUE(arg.tensor.sizes() == sizes, label(arg), " is ", arg.tensor.sizes(),
                    "; expected ", sizes, " (", why, ")");
}

inline void check_cpu(const Arg& arg) {
  TORCH_CHECK_VALUE(arg.tensor.is_cpu(), label(arg), " is on ", arg.tensor.device(),
                    "; this operator runs on the CPU only: move its arguments with .cpu()");
}

// The CPU, or a GPU if this build has CUDA kernels.
inline void check_device(const Arg& arg) {
  if (arg.tensor.is_cpu()) return;
#ifdef SEQFUSE_HAS_CUDA
  TORCH_CHECK_VALUE(arg.tensor.is_cuda(), label(arg), " is on ", arg.tensor.device(),
                    "; this operator runs on the CPU and on CUDA GPUs: move its arguments there");
#else
  TORCH_CHECK_VALUE(false, label(arg), " is on ", arg.tensor.device(),
                    ", but this build has no CUDA kernels: build with nvcc, or use .cpu()");
#endif
}

// Requires the device of the other arguments.
inline void check_on(const Arg& arg, at::Device device) {
  TORCH_CHECK_VALUE(arg.tensor.device() == device, label(arg), " is on ", arg.tensor.device(),
                    "; expected ", device, ", where the other arguments are");
}

inline void check_int64(const Arg& arg) {
  TORCH_CHECK_VALUE(arg.tensor.scalar_type() == at::kLong, label(arg), " is ",
                    arg.tensor.scalar_type(), "; expected Long (int64)");
}

// Requires float32 or float64, as every CPU operator does.
inline void check_cpu_float(const Arg& arg) {
  check_cpu(arg);
  const auto type = arg.tensor.scalar_type();
  TORCH_CHECK_VALUE(type == at::kFloat || type == at::kDouble, label(arg), " is ", type,
                    "; expected Float or Double on the CPU: convert it with .float()");
}

// Requires a floating-point dtype that operators support on the tensor's device.
inline void check_float(const Arg& arg) {
  check_device(arg);
  if (arg.tensor.is_cpu()) return check_cpu_float(arg);
  const auto type = arg.tensor.scalar_type();
  TORCH_CHECK_VALUE(type == at::kFloat || type == at::kHalf || type == at::kBFloat16, label(arg),
                    " is ", type, " on ", arg.tensor.device(),
                    "; expected Float, Half or BFloat16 on CUDA");
}

inline void check_dropout_probability(const char* op, double p) {
  TORCH_CHECK_VALUE(p >= 0 && p < 1, op, ": the dropout probability is ", p,
                    "; expected 0 <= p < 1");
}

inline void check_eps(const char* op, double eps) {
  TORCH_CHECK_VALUE(eps >= 0, op, ": eps is ", eps, "; expected 0 or more");
}

// Requires the dtype and device of another argument.
inline void check_like(const Arg& arg, const Arg& other) {
  TORCH_CHECK_VALUE(arg.tensor.scalar_type() == other.tensor.scalar_type() &&
                        arg.tensor.device() == other.tensor.device(),
                    label(arg), " is ", arg.tensor.scalar_type(), " on ", arg.tensor.device(),
                    "; expected ", other.tensor.scalar_type(), " on ", other.tensor.device(),
                    ", like ", other.name);
}

// weight and bias [D] of a norm over the last dimension of x [T, D]; each is optional.
inline void check_affine(const Arg& x, const std::optional<Tensor>& weight,
                         const std::optional<Tensor>& bias) {
  const auto check = [&](const char* name, const std::optional<Tensor>& values) {
    if (!values || !values->defined()) return;
    check_sizes({x.op, name, *values}, {x.tensor.size(1)}, "the columns of its input");
    check_like({x.op, name, *values}, x);
  };
  check("weight", weight);
  check("bias", bias);
}

// Offsets [B + 1], int64 or int32, from 0 to total (rows of `of`), non-decreasing. Values on a GPU
// are not read, since that would synchronise. Returns contiguous int64: the argument itself if it
// is that already. keep_int32: leaves int32 as it is; not on the CPU.
inline Tensor checked_offsets(const Arg& arg, int64_t total, const char* of,
                              at::Device device = at::kCPU, bool keep_int32 = false) {
  check_on(arg, device);
  const auto type = arg.tensor.scalar_type();
  TORCH_CHECK_VALUE(type == at::kLong || type == at::kInt, label(arg), " is ", type,
                    "; expected Long or Int (int64, int32)");
  TORCH_CHECK_VALUE(arg.tensor.dim() == 1 && arg.tensor.numel() > 0, label(arg), " is ",
                    arg.tensor.sizes(), "; expected [B + 1], starting with 0");
  const Tensor offsets = arg.tensor.to(keep_int32 ? type : at::kLong).contiguous();
  TORCH_CHECK_VALUE(offsets.numel() > 1 || total == 0, label(arg), " has one element, for no ",
                    "sequences, but ", of, " has ", total, " rows; expected [B + 1]");
  if (!offsets.is_cpu()) return offsets;
  const int64_t* values = offsets.const_data_ptr<int64_t>();
  const int64_t batch = offsets.numel() - 1;
  TORCH_CHECK_VALUE(values[0] == 0, label(arg), " starts with ", values[0], "; expected 0");
  for (int64_t b = 0; b < batch; ++b) {
    TORCH_CHECK_VALUE(values[b] <= values[b + 1], label(arg), " decreases from ", values[b], " to ",
                      values[b + 1], " at [", b + 1, "]; expected non-decreasing offsets");
  }
  TORCH_CHECK_VALUE(values[batch] == total, label(arg), " ends with ", values[batch], " but ", of,
                    " has ", total, " rows; they must be equal");
  return offsets;
}

// The tensor itself if its last stride is 1, as kernels require, else a contiguous copy.
inline Tensor with_unit_last_stride(const Tensor& tensor) {
  return tensor.stride(-1) == 1 || tensor.size(-1) <= 1 ? tensor : tensor.contiguous();
}

inline DType dtype_of(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return DType::f32;
    case at::kDouble:
      return DType::f64;
    case at::kHalf:
      return DType::f16;
    case at::kBFloat16:
      return DType::bf16;
    default:
      TORCH_CHECK_VALUE(false, tensor.scalar_type(), " is not a dtype of the operators");
  }
}

// An optional argument, contiguous; undefined if absent.
inline Tensor contiguous_or_undefined(const std::optional<Tensor>& tensor) {
  return tensor && tensor->defined() ? tensor->contiguous() : Tensor();
}

// The data of such a tensor; null if undefined.
inline const void* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

}  // namespace seqfuse::ops
