#include <functional>

#include "ops/torch/decode/decode.h"
#include "tests/ops/op_test.h"
#include "tests/oracles/decode_linear.h"

namespace seqfuse::decode_linear_test {
namespace {

using at::Tensor;
using ops::decode_linear;
using ops::DecodeLinearWeights;
using ops::LinearActivation;
using namespace seqfuse::test;

constexpr LinearActivation kActivations[] = {LinearActivation::none, LinearActivation::gelu_erf,
                                             LinearActivation::gelu_tanh};

// A weight in each type, and what it means in float32.
struct Held {
  DecodeLinearWeights weights;
  Tensor meant;
};

std::vector<Held> held(const Tensor& weight, const Tensor& bias) {
  std::vector<Held> all;
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const Tensor stored = weight.to(type);
    all.push_back({{stored, {}, bias}, stored.to(at::kFloat)});
  }
  const auto rows = ops::quantize_rows(weight);
  const Tensor meant = rows.values.to(at::kDouble) * rows.scales.to(at::kDouble).unsqueeze(1);
  all.push_back({{rows.values, rows.scales, bias}, meant});
  return all;
}

Tensor plain(const Tensor& x, const Tensor& w, const Tensor& b, LinearActivation activation) {
  const Tensor y = at::linear(x, w.to(at::kFloat), b);
  if (activation == LinearActivation::none) return y;
  return at::gelu(y, activation == LinearActivation::gelu_erf ? "none" : "tanh");
}

struct Case {
  int64_t rows, in, out;
};

class DecodeLinearTest : public testing::TestWithParam<Case> {};

// Both sides of every limit: registers (4, 8, 16 floats), cache lines, tiles of 8 rows, 16 rows.
INSTANTIATE_TEST_SUITE_P(Shapes, DecodeLinearTest,
                         testing::Values(Case{1, 1, 1}, Case{1, 3, 5}, Case{2, 8, 4},
                                         Case{3, 17, 9}, Case{4, 63, 7}, Case{5, 64, 8},
                                         Case{6, 65, 3}, Case{7, 100, 33}, Case{8, 128, 50},
                                         Case{9, 31, 6}, Case{13, 80, 21}, Case{16, 77, 130},
                                         Case{17, 40, 12}, Case{40, 33, 2}, Case{0, 4, 3}));

TEST_P(DecodeLinearTest, KeepsTheOracleRule) {
  const auto [rows, in, out] = GetParam();
  at::manual_seed(1);
  const Tensor x = random({rows, in}, at::kFloat), w = random({out, in}, at::kFloat);
  const Tensor b = random({out}, at::kFloat), r = random({rows, out}, at::kFloat);
  for (const Tensor& bias : {b, Tensor()}) {
    for (const Held& h : held(w, bias)) {
      for (const auto activation : kActivations) {
        const std::string what = c10::str(h.weights.weight.scalar_type(), " weights, activation ",
                                          static_cast<int>(activation));
        expect_oracle_rule(decode_linear(x, h.weights, activation),
                           plain(x, h.meant, bias, activation),
                           oracle::linear(x, h.meant, bias, activation, {}), 2, what,
                           max_abs(at::mm(x.abs(), h.meant.to(at::kFloat).abs().t())));
        EXPECT_TRUE(at::equal(decode_linear(x, h.weights, activation, r),
                              decode_linear(x, h.weights, activation) + r))
            << what << ", residual";
      }
    }
  }
}

// x of 16 bits: the result in float32, rounded once, and the residual added in 16 bits.
TEST_P(DecodeLinearTest, SixteenBitRows) {
  const auto [rows, in, out] = GetParam();
  at::manual_seed(2);
  const Tensor w = random({out, in}, at::kFloat), b = random({out}, at::kFloat);
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    const Tensor x = random({rows, in}, type), r = random({rows, out}, type);
    const DecodeLinearWeights weights{w.to(type), {}, b};
    const Tensor y = decode_linear(x, weights, LinearActivation::gelu_erf);
    EXPECT_EQ(y.scalar_type(), type);
    EXPECT_TRUE(at::equal(
        y, decode_linear(x.to(at::kFloat), weights, LinearActivation::gelu_erf).to(type)));
    EXPECT_TRUE(at::equal(decode_linear(x, weights, LinearActivation::gelu_erf, r), y + r));
  }
}

// A row alone, beside any number of others, by any number of threads, and with weights of any type
// that holds them: the same bits.
TEST(DecodeLinear, ARowsBitsDependOnItAlone) {
  at::manual_seed(3);
  for (const int64_t in : {37, 64, 200}) {
    const Tensor x = random({16, in}, at::kFloat), b = random({301}, at::kFloat);
    // Whole numbers that float16, bfloat16 and int8 hold; the largest of each row is 127.
    Tensor w = at::randint(-127, 128, {301, in}).to(at::kFloat);
    w.select(1, 0).fill_(127);
    const DecodeLinearWeights weights{w, {}, b};
    const Tensor expected = decode_linear(x, weights);
    for (int64_t rows = 1; rows <= 16; ++rows) {
      const Tensor part = x.slice(0, 16 - rows);
      EXPECT_TRUE(at::equal(decode_linear(part, weights), expected.slice(0, 16 - rows))) << rows;
      for (const auto type : {at::kHalf, at::kBFloat16}) {
        EXPECT_TRUE(
            at::equal(decode_linear(part, {w.to(type), {}, b}), expected.slice(0, 16 - rows)))
            << rows << ", " << type;
      }
    }
    const auto rows = ops::quantize_rows(w);
    EXPECT_TRUE(at::equal(rows.values.to(at::kFloat), w));
    EXPECT_TRUE(at::equal(decode_linear(x, {rows.values, rows.scales, b}), expected));
    expect_same_for_any_threads([&] {
      return std::vector<Tensor>{decode_linear(x, weights, LinearActivation::gelu_tanh),
                                 decode_linear(x, {rows.values, rows.scales, b})};
    });
  }
}

// Weights and rows at odd addresses; a view of x with gaps between its rows.
TEST(DecodeLinear, AlignmentAndStridesDoNotMatter) {
  at::manual_seed(4);
  const Tensor x = random({3, 70}, at::kFloat), w = random({11, 70}, at::kFloat);
  const auto moved = [](const Tensor& t) {
    Tensor memory = at::empty({t.numel() + 1}, t.options());
    Tensor view = memory.slice(0, 1).view(t.sizes());
    return view.copy_(t);
  };
  for (const Held& h : held(w, {})) {
    const Tensor expected = decode_linear(x, h.weights);
    const DecodeLinearWeights odd{moved(h.weights.weight), h.weights.scales, {}};
    EXPECT_TRUE(at::equal(decode_linear(moved(x), odd), expected));
    EXPECT_TRUE(at::equal(decode_linear(with_row_gaps(x), odd), expected));
    EXPECT_TRUE(at::equal(decode_linear(x.view({3, 1, 70}), odd).view({3, 11}), expected));
  }
}

TEST(DecodeLinear, GeluOfLargeAndSpecialValues) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor x = at::tensor(
      {-infinity, -1e30, -100.0, -13.0, -5.0, -1e-3, 0.0, 1e-3, 5.0, 13.0, 100.0, 1e30, infinity},
      at::kFloat);
  const DecodeLinearWeights one{at::ones({1, 1}), {}, {}};
  for (const auto activation : {LinearActivation::gelu_erf, LinearActivation::gelu_tanh}) {
    const Tensor y = decode_linear(x.view({-1, 1}), one, activation).view(-1);
    const Tensor expected = oracle::linear(x.view({-1, 1}), at::ones({1, 1}), {}, activation, {});
    for (int64_t i = 1; i + 1 < x.numel(); ++i) {
      const auto value = expected.view(-1)[i].item<double>();
      EXPECT_NEAR(y[i].item<double>(), value, 1e-7 * std::max(1.0, std::abs(value)))
          << x[i].item<double>();
    }
    EXPECT_EQ(y[-1].item<double>(), infinity);
    const Tensor nan = at::full({1, 1}, std::nan(""), at::kFloat);
    EXPECT_TRUE(decode_linear(nan, one, activation).isnan().all().item<bool>());
  }
}

TEST(DecodeLinear, NaNAndInfinityOfWeightsArrive) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const int64_t in : {9, 16}) {
      Tensor w = at::ones({3, in});
      w[0][in - 1] = infinity;
      w[1][0] = std::nan("");
      w[2][1] = -0x1p-24;  // subnormal in float16
      const Tensor y = decode_linear(at::ones({1, in}), {w.to(type), {}, {}})[0];
      EXPECT_EQ(y[0].item<double>(), infinity);
      EXPECT_TRUE(std::isnan(y[1].item<double>()));
      const Tensor tiny = at::zeros({1, in});
      tiny[0][1] = 1;
      EXPECT_EQ(decode_linear(tiny, {w.to(type).slice(0, 2), {}, {}}).item<double>(), -0x1p-24);
    }
  }
}

// To half a step of each row; a row of zeros and one of a single size stay exact.
TEST(QuantizeRows, IsWithinHalfAStep) {
  at::manual_seed(5);
  for (const auto type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    Tensor w = random({50, 33}, type);
    w[0].zero_();
    w[1].fill_(-0.25);
    const auto rows = ops::quantize_rows(w);
    EXPECT_EQ(rows.values.scalar_type(), at::kChar);
    const Tensor scales = rows.scales.to(at::kDouble);
    const Tensor largest = w.to(at::kDouble).abs().amax(1);
    EXPECT_LE(max_abs(scales - largest / 127), 1e-6 * max_abs(largest));
    const Tensor meant = rows.values.to(at::kDouble) * scales.unsqueeze(1);
    const Tensor errors = (meant - w.to(at::kDouble)).abs().amax(1);
    EXPECT_TRUE((errors <= 0.5001 * scales).all().item<bool>()) << type;
    EXPECT_EQ(max_abs(meant[0]), 0);
    EXPECT_TRUE((rows.values[1] == -127).all().item<bool>());
    EXPECT_LE(rows.values.to(at::kInt).abs().max().item<int>(), 127);
  }
}

TEST(DecodeLinear, WrongArgumentsAreExplained) {
  const Tensor x = random({2, 4}, at::kFloat), w = random({3, 4}, at::kFloat);
  const Tensor bytes = at::ones({3, 4}, at::kChar);
  expect_error([&] { decode_linear(random({2, 5}, at::kFloat), {w, {}, {}}); },
               "decode_linear: x is [2, 5]; expected [..., 4], the columns of weight");
  expect_error([&] { decode_linear(x.to(at::kDouble), {w, {}, {}}); },
               "decode_linear: x is Double; expected Float, Half or BFloat16");
  expect_error([&] { decode_linear(x, {bytes, {}, {}}); },
               "decode_linear: weight is Char without scales");
  expect_error([&] { decode_linear(x, {w, at::ones({3}), {}}); },
               "decode_linear: weight is Float with scales");
  expect_error([&] { decode_linear(x, {w, {}, at::ones({4})}); },
               "decode_linear: bias is [4]; expected [3] (the rows of weight)");
  expect_error([&] { decode_linear(x, {w, {}, at::ones({3}, at::kDouble)}); },
               "decode_linear: bias is Double; expected Float, contiguous");
  expect_error([&] { decode_linear(x, {w.to(at::kDouble), {}, {}}); },
               "decode_linear: weight is Double; expected Float, Half, BFloat16 or Char (int8)");
  expect_error([&] { decode_linear(x, {w, {}, {}}, LinearActivation::none, x); },
               "decode_linear: residual is [2, 4]; expected [2, 3] (like the result)");
  expect_error([&] { ops::quantize_rows(bytes); }, "quantize_rows: weight is Char");
}

}  // namespace
}  // namespace seqfuse::decode_linear_test
