// For headers that the host, nvcc and NVRTC compile: a few traits without the standard library,
// which NVRTC does not have.
#pragma once

#include "base/fixed_width.h"

// For functions that both host and device run. Plain C++ compilers see an inline function.
#ifdef __CUDACC__
#define SEQFUSE_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define SEQFUSE_HOST_DEVICE inline
#endif

namespace seqfuse::ops {

SEQFUSE_HOST_DEVICE constexpr int least(int a, int b) {
  return b < a ? b : a;
}
SEQFUSE_HOST_DEVICE constexpr int most(int a, int b) {
  return a < b ? b : a;
}

template <class A, class B>
inline constexpr bool kIsSame = false;
template <class A>
inline constexpr bool kIsSame<A, A> = true;

template <bool kFirst, class A, class B>
struct Choice {
  using Type = A;
};
template <class A, class B>
struct Choice<false, A, B> {
  using Type = B;
};
// A if kFirst, else B.
template <bool kFirst, class A, class B>
using Either = typename Choice<kFirst, A, B>::Type;

// A value as a type, so that a generic lambda knows an argument at compile time.
template <auto kValue>
struct Constant {
  static constexpr auto value = kValue;
  SEQFUSE_HOST_DEVICE constexpr operator decltype(kValue)() const { return kValue; }
  SEQFUSE_HOST_DEVICE constexpr auto operator()() const { return kValue; }
};
using Yes = Constant<true>;
using No = Constant<false>;

}  // namespace seqfuse::ops
