// Numbers of 32, 16 and 8 bits as whole SIMD registers of float32, and back. Every conversion to
// float32 is exact. For files of this directory only (see row_vectors.h).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "ops/cpu/row_vectors.h"

#if defined(__AVX2__) || defined(__F16C__) || defined(__FMA__)
#include <immintrin.h>
#endif

namespace seqfuse::ops::cpu {

struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

using Floats = Vector<float>;
inline constexpr int kFloats = kLanes<float>;

namespace detail {
// As many elements of a narrower type as a register has floats.
template <class T>
struct NarrowOf {
  typedef T type __attribute__((vector_size(kFloats * sizeof(T))));
};

template <class T, class S>
inline typename NarrowOf<T>::type load_narrow(const S* from) {
  static_assert(sizeof(T) == sizeof(S));
  typename NarrowOf<T>::type v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
}  // namespace detail

inline Floats load_floats(const float* from) {
  return load(from);
}

inline Floats load_floats(const BFloat16* from) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
#else
  const auto bits = detail::load_narrow<uint16_t>(from);
  return std::bit_cast<Floats>(__builtin_convertvector(bits, Vector<uint32_t>) << 16);
#endif
}

inline Floats load_floats(const Float16* from) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__F16C__)
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
  const auto half = detail::load_narrow<uint16_t>(from);
  const auto bits = __builtin_convertvector(half, Vector<uint32_t>);
  const Vector<uint32_t> magnitude = (bits & 0x7fff) << 13, sign = (bits & 0x8000) << 16;
  // The exponent's bias is 15 instead of 127; the product also normalises what is subnormal.
  const Floats scaled = std::bit_cast<Floats>(magnitude) * 0x1p112F;
  const Vector<uint32_t> special = std::bit_cast<Vector<uint32_t> >(magnitude >= (0x7c00U << 13));
  const Vector<uint32_t> value = std::bit_cast<Vector<uint32_t> >(scaled) | (special & 0x7f800000U);
  return std::bit_cast<Floats>(value | sign);
#endif
}

inline Floats load_floats(const int8_t* from) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#elif defined(__AVX2__)
  return _mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#else
  const auto bytes = detail::load_narrow<int8_t>(from);
  return __builtin_convertvector(bytes, Floats);
#endif
}

// The first count of them, 0 <= count < kFloats, the others 0. Reads nothing beyond.
template <class T>
inline Floats load_floats(const T* from, int64_t count) {
  T padded[kFloats] = {};
  std::memcpy(padded, from, static_cast<size_t>(count) * sizeof(T));
  return load_floats(padded);
}

// a b + c, rounded once where the processor can. (The compiler's own choice differs from loop to loop.)
inline Floats multiply_add(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

// Rounded to the nearest, ties to even; what is too large becomes infinite.
inline void store_float(float value, float* to) {
  *to = value;
}

inline void store_float(float value, BFloat16* to) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;
  to->bits = static_cast<uint16_t>(nan ? 0x7fc0 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline void store_float(float value, Float16* to) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffff;
  uint32_t half;
  if (magnitude >= 0x47800000) {  // 65536, or NaN
    half = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
  } else if (magnitude < 0x38800000) {  // subnormal: units of 2^-24, which are those of 0.5F
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000;
  } else {
    half = (magnitude - (112U << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  }
  to->bits = static_cast<uint16_t>(half | ((bits >> 16) & 0x8000));
}

}  // namespace seqfuse::ops::cpu
