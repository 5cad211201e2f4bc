// exp, sigmoid and SiLU without branches or calls, so that the compiler vectorises loops over them.
// T is float or double. Relative error of exp: below 9e-8 (float), 2e-16 (double). NaN gives NaN.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace seqfuse::ops::cpu {

namespace detail {

// exp(x) = 2^n exp(r), n = round(x / ln 2), exp(r) = 1 + r + r^2 P(r) on |r| <= ln(2) / 2.
// ln2_high has trailing zeros: n * ln2_high is exact with or without fused multiply-add.
template <class T>
struct ExpConstants;

template <>
struct ExpConstants<float> {
  using Bits = uint32_t;
  static constexpr int kMantissa = 23, kBias = 127;
  static constexpr float kLowest = -87.0F, kHighest = 88.0F, kRound = 0x1.8p23F;
  static constexpr float kLog2e = 0x1.715476p0F, kLn2High = 0x1.62e4p-1F, kLn2Low = 0x1.7f7d1cp-20F;
  static constexpr float kPolynomial[] = {0x1p-1F, 0x1.5554dcp-3F, 0x1.55551ap-5F, 0x1.120b6ep-7F,
                                          0x1.6d110ap-10F};
};

template <>
struct ExpConstants<double> {
  using Bits = uint64_t;
  static constexpr int kMantissa = 52, kBias = 1023;
  static constexpr double kLowest = -708.0, kHighest = 709.0, kRound = 0x1.8p52;
  static constexpr double kLog2e = 0x1.71547652b82fep0, kLn2High = 0x1.62e42feep-1,
                          kLn2Low = 0x1.a39ef35793c76p-33;
  static constexpr double kPolynomial[] = {
      0x1.0000000000001p-1,  0x1.5555555555556p-3,  0x1.5555555553d63p-5,  0x1.11111111109b3p-7,
      0x1.6c16c1788bd90p-10, 0x1.a01a01a7c41d5p-13, 0x1.a019b90d2ae7ap-16, 0x1.71de0dae63bb3p-19,
      0x1.289185613a3d6p-22, 0x1.af38a9b0ec855p-26};
};

}  // namespace detail

// e^x. Saturates: x is clamped to [-87, 88] (float), [-708, 709] (double), so never 0 nor infinity.
template <class T>
inline T exp(T x) {
  using C = detail::ExpConstants<T>;
  using Bits = typename C::Bits;
  x = x < C::kLowest ? C::kLowest : x;
  x = x > C::kHighest ? C::kHighest : x;
  // Adding 1.5 * 2^mantissa rounds to an integer and leaves it in the low bits.
  const T shifted = x * C::kLog2e + C::kRound;
  const T n = shifted - C::kRound;
  const T r = (x - n * C::kLn2High) - n * C::kLn2Low;
  constexpr int kTerms = static_cast<int>(std::extent_v<decltype(C::kPolynomial)>);
  T p = C::kPolynomial[kTerms - 1];
#pragma GCC unroll 16
  for (int i = kTerms - 2; i >= 0; --i) p = p * r + C::kPolynomial[i];
  const Bits scale = (std::bit_cast<Bits>(shifted) << C::kMantissa) +
                     (static_cast<Bits>(C::kBias) << C::kMantissa);
  return ((p * (r * r) + r) + T(1)) * std::bit_cast<T>(scale);
}

template <class T>
inline T sigmoid(T x) {
  return T(1) / (T(1) + exp(-x));
}

template <class T>
inline T silu(T x) {
  return x * sigmoid(x);
}

// d silu(x) / dx = sigma (1 + x (1 - sigma)), sigma = sigmoid(x).
template <class T>
inline T silu_gradient(T x) {
  const T s = sigmoid(x);
  return s * (T(1) + x * (T(1) - s));
}

}  // namespace seqfuse::ops::cpu
