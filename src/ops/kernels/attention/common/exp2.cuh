// Softmax in powers of two, which the hardware has.
#pragma once

namespace seqfuse::ops::attention {

constexpr float kLog2e = 1.44269504f;
// -infinity, of a score that is not seen. NVRTC has no __builtin_huge_valf().
constexpr float kNone = __builtin_bit_cast(float, 0xff800000u);

__device__ __forceinline__ float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace seqfuse::ops::attention
