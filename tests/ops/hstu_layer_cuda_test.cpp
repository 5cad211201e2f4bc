// The fused layer against float64, compared with the same layer in plain PyTorch in its dtype.
#include <vector>

#include "tests/ops/cuda_test.h"
#include "tests/ops/hstu_attention_problem.h"

namespace seqfuse::hstu_layer_cuda_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;
using ops::HstuLayerOptions;
using ops::HstuLayerWeights;

struct Shape {
  int64_t width, heads, head_dim;
  bool affine = true, uvqk_bias = true, output_bias = false, relative_bias = false;
  bool recompute_norm = false, recompute_silu = false;
  bool norm_weights = true, norm_biases = true;  // of affine norms
};

// x and the weights, in the order of the layer's gradients; undefined if the shape lacks them.
struct LayerProblem {
  explicit LayerProblem(const Shape& s)
      : shape(s),
        attention(kLengths, {.heads = s.heads,
                             .head_dim = s.head_dim,
                             .contexts = 3,
                             .targets = 9,
                             .group_size = 2,
                             .bias = s.relative_bias}) {
    const int64_t inner = s.heads * s.head_dim, tokens = attention.q.size(0);
    const auto vector = [&](bool present, int64_t size, double mean) {
      return present ? mean + .3 * random({size}, at::kFloat).to(at::kDouble) : Tensor();
    };
    const auto matrix = [&](int64_t rows, int64_t columns) {
      return random({rows, columns}, at::kFloat).to(at::kDouble) / std::sqrt(rows);
    };
    tensors = {random({tokens, s.width}, at::kFloat).to(at::kDouble),
               vector(s.affine && s.norm_weights, s.width, 1),
               vector(s.affine && s.norm_biases, s.width, 0),
               matrix(s.width, 4 * inner),
               vector(s.uvqk_bias, 4 * inner, 0),
               vector(s.affine && s.norm_weights, inner, 1),
               vector(s.affine && s.norm_biases, inner, 0),
               matrix(inner, s.width),
               vector(s.output_bias, s.width, 0)};
    if (s.relative_bias) {
      tensors.push_back(*attention.options.position_bias);
      tensors.push_back(*attention.options.time_bias);
    }
    dout = random({tokens, s.width}, at::kFloat).to(at::kDouble);
  }

  inline static const std::vector<int64_t> kLengths{0, 1, 70, 130, 7, 0};
  Shape shape;
  Problem attention;
  std::vector<Tensor> tensors;
  Tensor dout;
};

const char* const kNames[] = {
    "out",           "dx",          "input norm weight",  "input norm bias",
    "uvqk weight",   "uvqk bias",   "output norm weight", "output norm bias",
    "output weight", "output bias", "position bias",      "time bias"};

// Runs the layer in a dtype on a device, with weights in weight_type: out and all gradients.
template <class Layer>
std::vector<Tensor> results_of(const LayerProblem& problem, at::TensorOptions options,
                               at::ScalarType weight_type, Layer&& layer) {
  std::vector<Tensor> leaves, present;
  for (size_t i = 0; i < problem.tensors.size(); ++i) {
    const Tensor& t = problem.tensors[i];
    const auto type = i == 0 ? options : options.dtype(weight_type);
    leaves.push_back(t.defined() ? t.to(type).detach().clone().requires_grad_() : t);
    if (t.defined()) present.push_back(leaves.back());
  }
  const Tensor out = layer(leaves);
  std::vector<Tensor> all{out.detach()};
  for (const Tensor& g : torch::autograd::grad({out}, present, {problem.dout.to(out.options())}))
    all.push_back(g);
  return all;
}

HstuLayerWeights weights_of(const std::vector<Tensor>& t) {
  const auto if_any = [&](size_t i) {
    return t[i].defined() ? ops::OptionalTensor(t[i]) : std::nullopt;
  };
  return {if_any(1), if_any(2), t[3], if_any(4), if_any(5), if_any(6), t[7], if_any(8)};
}

// Results for leaves t, in the form of results_of().
Tensor layer_of(const LayerProblem& problem, const std::vector<Tensor>& t, double dropout = 0) {
  const auto there = [&](const ops::OptionalTensor& values) {
    return values ? ops::OptionalTensor(values->to(t[0].device())) : values;
  };
  HstuLayerOptions layer{.heads = problem.shape.heads,
                         .eps = 1e-5,
                         .dropout = dropout,
                         .seed = 5,
                         .recompute_input_layernorm = problem.shape.recompute_norm,
                         .recompute_input_silu = problem.shape.recompute_silu,
                         .attention = problem.attention.options};
  ops::HstuAttentionOptions& attention = layer.attention;
  attention.num_contexts = there(attention.num_contexts);
  attention.num_targets = there(attention.num_targets);
  attention.timestamps = there(attention.timestamps);
  attention.request_times = there(attention.request_times);
  attention.max_seqlen = 131;
  if (problem.shape.relative_bias) {
    attention.position_bias = t[9];
    attention.time_bias = t[10];
  }
  return ops::hstu_layer(t[0], weights_of(t), problem.attention.k_offsets.to(t[0].device()), layer);
}

std::vector<Tensor> by_operator(const LayerProblem& problem, at::TensorOptions options,
                                at::ScalarType weight_type, double dropout = 0) {
  return results_of(problem, options, weight_type,
                    [&](const std::vector<Tensor>& t) { return layer_of(problem, t, dropout); });
}

// In plain PyTorch on the CPU.
std::vector<Tensor> by_pytorch(const LayerProblem& problem, at::ScalarType type) {
  return results_of(problem, type, type, [&](const std::vector<Tensor>& t) {
    const Shape& s = problem.shape;
    const int64_t inner = s.heads * s.head_dim, tokens = t[0].size(0);
    const auto norm = [&](const Tensor& x, size_t weight) {
      return at::layer_norm(x, {x.size(1)}, t[weight], t[weight + 1], 1e-5);
    };
    Tensor z = at::mm(norm(t[0], 1), t[3]);
    if (t[4].defined()) z = z + t[4];
    const std::vector<Tensor> parts = at::silu(z).split(inner, 1);
    const auto heads = [&](size_t part) { return parts[part].view({tokens, s.heads, s.head_dim}); };
    HstuAttentionOptions options = problem.attention.options;
    if (s.relative_bias) {
      options.position_bias = t[9];
      options.time_bias = t[10];
    }
    const Tensor o = plain_attention(problem.attention, heads(2), heads(3), heads(1), options);
    const Tensor gated = parts[0] * norm(o.flatten(1), 5);
    Tensor out = t[0] + at::mm(gated, t[7]);
    return t[8].defined() ? out + t[8] : out;
  });
}

class HstuLayerCudaTest : public CudaTestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, HstuLayerCudaTest, testing::Values(at::kHalf, at::kBFloat16));

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{
      {.width = 64, .heads = 2, .head_dim = 32},
      {.width = 48, .heads = 1, .head_dim = 64, .recompute_norm = true, .recompute_silu = true},
      {.width = 50,
       .heads = 1,
       .head_dim = 50,
       .affine = false,
       .uvqk_bias = false,
       .output_bias = true,
       .relative_bias = true},
      {.width = 50,
       .heads = 2,
       .head_dim = 25,
       .affine = false,
       .uvqk_bias = false,
       .output_bias = true,
       .relative_bias = true,
       .recompute_silu = true},
      {.width = 128, .heads = 1, .head_dim = 128, .output_bias = true},
      {.width = 256, .heads = 1, .head_dim = 256, .recompute_norm = true},
      {.width = 64, .heads = 2, .head_dim = 32, .norm_biases = false},
      {.width = 64, .heads = 2, .head_dim = 32, .norm_weights = false},
  };
  return all;
}

TEST_P(HstuLayerCudaTest, KeepsTheOracleRule) {
  const auto on_gpu = at::TensorOptions(at::kCUDA).dtype(GetParam());
  for (const Shape& shape : shapes()) {
    const LayerProblem problem(shape);
    const auto actual = by_operator(problem, on_gpu, at::kFloat),
               framework = by_pytorch(problem, GetParam()),
               exact = by_pytorch(problem, at::kDouble);
    for (size_t i = 0, name = 0; i < actual.size(); ++i, ++name) {
      while (name > 0 && !problem.tensors[name - 1].defined()) ++name;
      expect_oracle_rule(actual[i].to(GetParam()), framework[i], exact[i], i == 0 ? 2 : 5,
                         fmt::format("width {} heads {} head_dim {}: {}", shape.width, shape.heads,
                                     shape.head_dim, kNames[name]));
    }
  }
}

TEST_P(HstuLayerCudaTest, GradientsOfWeightsAreFloat32) {
  const auto gradients = by_operator(LayerProblem(shapes()[4]),
                                     at::TensorOptions(at::kCUDA).dtype(GetParam()), at::kFloat);
  // Needs more digits than 16 bits have.
  const auto is_fine = [](const Tensor& g, at::ScalarType type) {
    return !at::equal(g, g.to(type).to(at::kFloat));
  };
  for (const size_t i : {4, 5, 8, 9})  // matrices and biases of products
    EXPECT_TRUE(is_fine(gradients[i], GetParam())) << kNames[i];
}

// The mask depends only on the seed.
TEST_P(HstuLayerCudaTest, DropsWhatTheCpuDrops) {
  const LayerProblem problem(shapes()[0]);
  const auto actual = by_operator(problem, at::TensorOptions(at::kCUDA).dtype(GetParam()),
                                  at::kFloat, .5),
             expected = by_operator(problem, at::kDouble, at::kDouble, .5);
  const double tolerance = GetParam() == at::kHalf ? .01 : .06;
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_LE(max_abs(to64(actual[i]) - expected[i]), tolerance * (1 + max_abs(expected[i]))) << i;
  }
}

TEST_P(HstuLayerCudaTest, BitEqualFromRunToRun) {
  const Deterministic mode;
  const LayerProblem problem(shapes()[2]);
  const auto on_gpu = at::TensorOptions(at::kCUDA).dtype(GetParam());
  const auto first = by_operator(problem, on_gpu, at::kFloat, .2);
  for (int run = 0; run < 5; ++run)
    expect_equal(by_operator(problem, on_gpu, at::kFloat, .2), first, "run");
}

TEST_P(HstuLayerCudaTest, GradientsThatAreAskedForAlone) {
  const Deterministic mode;
  const LayerProblem problem(
      {.width = 64, .heads = 2, .head_dim = 32, .output_bias = true, .relative_bias = true});
  const auto on_gpu = at::TensorOptions(at::kCUDA).dtype(GetParam());
  results_of(problem, on_gpu, at::kFloat, [&](const std::vector<Tensor>& t) {
    const Tensor out = layer_of(problem, t);
    std::vector<Tensor> leaves;
    for (const Tensor& leaf : t)
      if (leaf.defined()) leaves.push_back(leaf);
    expect_same_alone(out, leaves, problem.dout.to(out.options()), "layer");
    return out;
  });
}

TEST_P(HstuLayerCudaTest, NoTokens) {
  const auto on_gpu = at::TensorOptions(at::kCUDA).dtype(GetParam());
  const auto leaf = [&](at::IntArrayRef sizes) { return at::ones(sizes, on_gpu).requires_grad_(); };
  const Tensor x = leaf({0, 16}), uvqk = leaf({16, 64}), output = leaf({16, 16});
  HstuLayerWeights weights;
  weights.uvqk = uvqk;
  weights.output = output;
  HstuLayerOptions options{.heads = 2};
  const Tensor offsets = at::zeros({3}, on_gpu.dtype(at::kLong));
  const Tensor out = ops::hstu_layer(x, weights, offsets, options);
  EXPECT_EQ(out.sizes(), x.sizes());
  for (const Tensor& g : torch::autograd::grad({out.sum()}, {uvqk, output}))
    EXPECT_EQ(max_abs(g), 0);
}

TEST(HstuLayer, WrongArgumentsAreExplained) {
  const auto run = [](at::IntArrayRef uvqk, int64_t heads, double dropout) {
    HstuLayerWeights weights;
    weights.uvqk = at::ones(uvqk);
    weights.output = at::ones({8, 6});
    ops::hstu_layer(at::ones({5, 6}), weights, integers({0, 5}),
                    {.heads = heads, .dropout = dropout});
  };
  run({6, 32}, 2, 0);
  expect_error([&] { run({6, 31}, 2, 0); }, "uvqk weight");
  expect_error([&] { run({6, 32}, 3, 0); }, "3 heads");
  expect_error([&] { run({6, 32}, 2, 1); }, "dropout probability");
}

}  // namespace
}  // namespace seqfuse::hstu_layer_cuda_test
