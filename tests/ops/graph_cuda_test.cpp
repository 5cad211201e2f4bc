// The kernels over the edges of a graph, by way of the operators.
#include "tests/ops/cuda_test.h"
#include "tests/ops/graph_problem.h"

namespace seqfuse::graph_cuda_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

class GraphCudaTypes : public CudaTestWithParam<at::ScalarType> {
 protected:
  at::TensorOptions type() const { return at::TensorOptions(GetParam()).device(at::kCUDA); }
};
INSTANTIATE_TEST_SUITE_P(Types, GraphCudaTypes, cuda_types(),
                         [](const auto& type) { return std::string(toString(type.param)); });

TEST_P(GraphCudaTypes, OperatorsAreTheFormulas) {
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{300, 200}, {45, 45}, {1, 7}, {7, 1}}) {
    const oracle::Edges edges = random_edges(rows, columns);
    for (const auto& [heads, dim] : {std::pair<int64_t, int64_t>{1, 64}, {8, 8}, {3, 7}}) {
      GraphCase{edges, heads, dim}.check(std::to_string(rows) + " x " + std::to_string(columns),
                                         {type()});
    }
  }
}

// Every shape of the kernels: packs or single elements, one chunk or several, few lanes or 32.
TEST_P(GraphCudaTypes, OperatorsTakeAnyWidth) {
  const oracle::Edges edges = random_edges(90, 80);
  for (const int64_t heads : {1, 2, 5, 40}) {
    for (const int64_t dim : {1, 4, 8, 12, 24, 31, 33, 96, 100, 128, 136, 250, 256}) {
      if (heads * dim > 2000) continue;
      GraphCase{edges, heads, dim}.check("width", {type()});
    }
  }
}

TEST_P(GraphCudaTypes, SumsAndProductsHaveNoLargestWidth) {
  const oracle::Edges edges = random_edges(90, 80);
  for (const int64_t dim : {257, 264, 700, 1024}) {
    const GraphCase c{edges, 2, dim};
    const auto d = static_cast<double>(dim);
    c.spmm(true).check("wide spmm", {type()}, 4 * d);
    c.sddmm().check("wide sddmm", {type()}, 4 * d);
  }
}

TEST_P(GraphCudaTypes, EveryRunGivesTheSameBits) {
  const GraphCase c{random_edges(900, 700), 2, 40};
  for (const GraphOp& op : {c.spmm(true), c.sddmm(), c.gat(0.3)})
    expect_equal(op.run(op.ours, type()), op.run(op.ours, type()), "again");
}

class GraphCuda : public CudaTest {};

// More than 131,072 edges: parts of 128.
TEST_F(GraphCuda, LargeGraphsAreTheCpus) {
  const GraphCase c{random_edges(9000, 140000), 2, 16};
  ASSERT_GT(c.edges.row.numel(), 131072);
  for (const GraphOp& op : {c.spmm(true), c.sddmm(), c.gat(0.3)}) {
    auto expected = op.run(op.ours, at::kDouble);
    for (Tensor& result : expected) result = result.to(at::kFloat);
    expect_close(op.run(op.ours, at::TensorOptions(at::kFloat).device(at::kCUDA)), expected,
                 "a large graph");
  }
}

TEST_F(GraphCuda, ScoresOfMinusInfinityDoNotCount) {
  const auto graph =
      ops::build_graph(at::tensor({0, 2, 3, 3}), at::tensor({0, 1, 1}), 2, at::kCUDA);
  const Tensor left = at::zeros({3, 1}).cuda().requires_grad_();
  const Tensor x = at::tensor({3.0F, 5.0F}).view({2, 1, 1}).cuda().requires_grad_();
  const Tensor right =
      at::tensor({0.0F, -std::numeric_limits<float>::infinity()}).view({2, 1}).cuda();
  const Tensor out = ops::gat_attention(left, right, x, graph, 0.2, 0, 0);
  EXPECT_TRUE(at::equal(out.flatten().cpu(), at::tensor({3.0F, 0.0F, 0.0F})));
  const auto gradients = torch::autograd::grad({out}, {left, x}, {at::ones_like(out)});
  EXPECT_EQ(max_abs(gradients[0]), 0);
  EXPECT_TRUE(at::equal(gradients[1].flatten().cpu(), at::tensor({1.0F, 0.0F})));
}

TEST_F(GraphCuda, WrongArgumentsAreExplained) {
  const auto here = ops::build_graph(at::tensor({0, 1}), at::tensor({0}), 1, at::kCPU);
  const auto there = ops::build_graph(at::tensor({0, 1}), at::tensor({0}), 1, at::kCUDA);
  const Tensor x = at::zeros({1, 1, 300}).cuda(), a = at::zeros({1, 1}).cuda();
  expect_error([&] { ops::spmm(std::nullopt, x, here); },
               "the graph is on cpu and the features on cuda:0; move the graph with");
  expect_error([&] { ops::gat_attention(a, a, x, there, 0.2, 0, 0); },
               "on CUDA, a head has at most 256 features: use more heads");
  expect_error([&] { ops::spmm(std::nullopt, x.to(at::kDouble), there); },
               "x is Double on cuda:0; expected Float, Half or BFloat16 on CUDA");
}

}  // namespace
}  // namespace seqfuse::graph_cuda_test
