// No operator waits for the GPU, forward or backward: PyTorch turns waiting into an error. Our
// kernels cannot wait, since launchers only enqueue.
#include "ops/torch/graph/graph.h"
#include "ops/torch/ops.h"
#include "tests/ops/cuda_test.h"

namespace seqfuse::synchronisation_cuda_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

struct Case {
  const char* name;
  OpOfLeaves op;  // of rows [12, 8], a table [9, 8], a row [8] and a vector [8]
  // Uses PyTorch's matrix products, which need an environment variable in deterministic mode.
  bool products = false;
};

// Integer tensors, created before synchronising is forbidden.
struct Integers {
  Tensor lengths = at::tensor({5, 0, 7}, at::kLong).cuda();
  Tensor offsets = offsets_of({5, 0, 7}).cuda();
  Tensor counts = at::tensor({1, 0, 2}, at::kLong).cuda();
  Tensor times = at::arange(12, at::kLong).cuda();
  Tensor ids = at::randint(9, {12}, at::kLong).cuda();
  Tensor negatives = at::randint(9, {12, 4}, at::kInt).cuda();
  Tensor catalogue = at::arange(9, at::kLong).cuda();
  ops::GraphTensors graph =
      ops::build_graph(offsets, at::tensor({0, 2, 3, 5, 8, 0, 1, 3, 4, 5, 7, 8}), 9, at::kCUDA);
};

// With all optional arguments. The position bias: 13 elements of the table.
ops::HstuAttentionOptions attention_options(const Integers& i, const Tensor& table,
                                            const Tensor& time_bias) {
  return {.scaling_seqlen = 7,
          .max_seqlen = 7,
          .num_contexts = i.counts,
          .num_targets = i.counts,
          .position_bias = table.flatten().slice(0, 0, 13),
          .time_bias = time_bias,
          .timestamps = i.times,
          .request_times = i.counts};
}

Tensor attention(const Integers& i, const std::vector<Tensor>& in, at::ScalarType type) {
  const Tensor heads = in[0].to(type).unsqueeze(1);
  return ops::hstu_attention(heads, heads, heads, i.offsets, i.offsets,
                             attention_options(i, in[1], in[2]));
}

// One head of 8.
Tensor layer(const Integers& i, const std::vector<Tensor>& in, at::ScalarType type) {
  const Tensor square = in[1].slice(0, 0, 8);
  return ops::hstu_layer(
      in[0].to(type),
      {.input_norm_weight = in[2],
       .input_norm_bias = in[3],
       .uvqk = square.repeat({1, 4}),
       .uvqk_bias = in[2].repeat({4}),
       .output_norm_weight = in[2],
       .output_norm_bias = in[3],
       .output = square,
       .output_bias = in[3]},
      i.offsets, {.dropout = .2, .seed = 1, .attention = attention_options(i, in[1], in[2])});
}

std::vector<Case> cases(const Integers& i) {
  return {
      {"hstu_attention, 16 bits", [=](auto& in) { return attention(i, in, at::kBFloat16); }},
      {"hstu_attention, float32", [=](auto& in) { return attention(i, in, at::kFloat); },
       /*products=*/true},
      {"hstu_layer, 16 bits", [=](auto& in) { return layer(i, in, at::kBFloat16); }},
      {"hstu_layer, float32", [=](auto& in) { return layer(i, in, at::kFloat); },
       /*products=*/true},
      {"layer_norm", [](auto& in) { return ops::layer_norm(in[0], in[2], in[3], 1e-5); }},
      {"layer_norm_gate",
       [](auto& in) { return ops::layer_norm_gate(in[0], in[0], in[2], in[3], 1e-5, .2, 1); }},
      {"layer_norm_residual",
       [](auto& in) { return ops::layer_norm_residual(in[0], in[0], in[2], in[3], 1e-5); }},
      {"add_dual_layer_norm",
       [](auto& in) {
         return std::get<1>(
             ops::add_dual_layer_norm({in[0], in[0]}, in[2], in[3], in[3], in[2], 1e-5));
       }},
      {"l2_normalize", [](auto& in) { return ops::l2_normalize(in[0], 1e-6); }},
      {"dropout", [](auto& in) { return ops::dropout(in[0], .2, 1); }},
      {"lengths_to_offsets",
       [=](auto& in) { return in[0] * ops::lengths_to_offsets(i.lengths).size(0); }},
      {"jagged_concat",
       [=](auto& in) { return ops::jagged_concat({in[0], in[0]}, {i.offsets, i.offsets}); }},
      {"jagged_split", [=](auto& in) { return ops::jagged_split(in[0], {i.offsets}, {12})[0]; }},
      {"jagged_to_dense", [=](auto& in) { return ops::jagged_to_dense(in[0], i.offsets, 6, 0); }},
      {"dense_to_jagged",
       [=](auto& in) { return ops::dense_to_jagged(in[0].view({3, 4, 8}), i.offsets, 12); }},
      {"jagged_repeat",
       [=](auto& in) { return ops::jagged_repeat(in[0].slice(0, 0, 3), i.offsets, 12); }},
      {"interleave", [](auto& in) { return ops::interleave(in[0], in[0]); }},
      {"position_encoding",
       [=](auto& in) { return ops::position_encoding(in[0], in[1], i.offsets, i.counts, 2); }},
      {"time_encoding",
       [=](auto& in) { return ops::time_encoding(in[0], in[1], i.offsets, i.times, 2); }},
      {"embedding_lookup", [=](auto& in) { return ops::embedding_lookup(in[1], i.ids, false); }},
      {"embedding_lookup, sparse",
       [=](auto& in) { return ops::embedding_lookup(in[1], i.ids, true); }},
      {"sampled_softmax_loss",
       [=](auto& in) { return ops::sampled_softmax_loss(in[0], in[1], i.ids, i.negatives, .1); }},
      {"full_softmax_loss",
       [=](auto& in) { return ops::full_softmax_loss(in[0], in[1], i.ids, i.catalogue, .1); },
       /*products=*/true},
      {"full_softmax_loss, seen",
       [=](auto& in) {
         return ops::full_softmax_loss(in[0], in[1], i.ids, i.catalogue, .1, i.ids, i.offsets);
       },
       /*products=*/true},
      {"spmm", [=](auto& in) { return ops::spmm(std::nullopt, in[1].unsqueeze(1), i.graph); }},
      {"sddmm",
       [=](auto& in) {
         const Tensor rows = in[0].slice(0, 0, 3).unsqueeze(1);
         return ops::sddmm(rows, in[1].unsqueeze(1), i.graph);
       }},
      {"gat_attention",
       [=](auto& in) {
         const Tensor left = in[0].slice(0, 0, 3).slice(1, 0, 1), right = in[1].slice(1, 0, 1);
         return ops::gat_attention(left, right, in[1].unsqueeze(1), i.graph, .2, .5, 1);
       }},
      {"sample_uniform",
       [=](auto& in) { return in[0] + ops::sample_uniform(i.catalogue, 12, 8, 1); }},
  };
}

class SynchronisationCudaTest : public CudaTest {};

TEST_F(SynchronisationCudaTest, NoOperatorWaits) {
  std::vector<Tensor> leaves{random({12, 8}, at::kFloat).cuda(), random({9, 8}, at::kFloat).cuda(),
                             random({8}, at::kFloat).cuda(), random({8}, at::kFloat).cuda()};
  for (Tensor& leaf : leaves) leaf.requires_grad_();
  const auto run = [&](const Case& c) {
    const Tensor y = c.op(leaves);
    torch::autograd::grad({y}, leaves, {at::ones_like(y)}, /*retain_graph=*/false,
                          /*create_graph=*/false, /*allow_unused=*/true);
  };
  const Integers integers;
  for (const bool deterministic : {false, true}) {
    for (const Case& c : cases(integers)) {
      if (deterministic && c.products) continue;
      at::globalContext().setDeterministicAlgorithms(deterministic, false);
      run(c);  // libraries load and allocate on first use
      const NoSynchronisation none;
      try {
        run(c);
      } catch (const std::exception& error) {
        ADD_FAILURE() << c.name << (deterministic ? ", deterministic: " : ": ") << error.what();
      }
    }
  }
  at::globalContext().setDeterministicAlgorithms(false, false);
}

}  // namespace
}  // namespace seqfuse::synchronisation_cuda_test
