// Element types of tensors, for operators. POD, shared by CUDA and C++ sources.
#pragma once

#include <cstdint>

namespace seqfuse {

enum class DType : int32_t { f32, f64, f16, bf16 };

constexpr int64_t size_of(DType dtype) {
  return dtype == DType::f64 ? 8 : dtype == DType::f32 ? 4 : 2;
}

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float32";
    case DType::f64:
      return "float64";
    case DType::f16:
      return "float16";
    case DType::bf16:
      return "bfloat16";
  }
  return "?";
}

}  // namespace seqfuse
