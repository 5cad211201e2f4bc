// What programs that check and time kernels alone share.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdio>
#include <cstdlib>
#include <type_traits>

namespace seqfuse {

// Ends the program with the error, if it is one.
inline void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

inline double value_of(__half v) {
  return __half2float(v);
}
inline double value_of(__nv_bfloat16 v) {
  return __bfloat162float(v);
}

// T: __half or __nv_bfloat16; v is rounded to float first.
template <class T>
T make(double v) {
  if constexpr (std::is_same_v<T, __half>)
    return __float2half(static_cast<float>(v));
  else
    return __float2bfloat16(static_cast<float>(v));
}

}  // namespace seqfuse
