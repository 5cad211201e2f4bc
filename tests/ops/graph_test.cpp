#include "ops/kernels/graph/csr_graph.h"
#include "tests/ops/graph_problem.h"

namespace seqfuse::graph_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

const std::vector<at::TensorOptions> kTypes{at::kFloat, at::kDouble};

TEST(Graph, OperatorsAreTheFormulas) {
  at::manual_seed(5);
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{45, 60}, {1, 7}, {7, 1}}) {
    const oracle::Edges edges = random_edges(rows, columns);
    for (const auto& [heads, dim] : {std::pair<int64_t, int64_t>{1, 64}, {8, 8}, {3, 7}}) {
      GraphCase{edges, heads, dim}.check(std::to_string(rows) + " x " + std::to_string(columns),
                                         kTypes);
    }
  }
}

TEST(Graph, OperatorsTakeAnyWidth) {
  at::manual_seed(6);
  const oracle::Edges edges = random_edges(50, 40);
  for (const int64_t dim : {1, 5, 16, 33, 100, 257})
    GraphCase{edges, 2, dim}.check("width", kTypes);
}

TEST(Graph, GradientsAreThoseOfDifferences) {
  at::manual_seed(7);
  const GraphCase c{random_edges(6, 5), 2, 3};
  for (GraphOp op : {c.spmm(true), c.sddmm(), c.gat(0), c.gat(0.5)}) {
    // With 16-bit values a_l + a_r may be 0, where LeakyReLU has no derivative.
    for (Tensor& leaf : op.leaves) leaf = random(leaf.sizes());
    expect_gradients(op.ours, op.leaves);
  }
}

TEST(Graph, ResultsAreTheSameBitsForAnyThreads) {
  at::manual_seed(8);
  const GraphCase c{random_edges(3000, 2000), 2, 40};
  for (const GraphOp& op : {c.spmm(true), c.sddmm(), c.gat(0.3)})
    expect_same_for_any_threads([&] { return op.run(op.ours, at::kFloat); });
}

TEST(Graph, NothingToDo) {
  const Tensor none = at::empty({0}, at::kLong);
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{0, 3}, {3, 0}, {0, 0}, {3, 3}}) {
    for (const int64_t heads : {0, 2}) {
      const GraphCase c{{none, none, rows, columns}, heads, 4};
      for (const GraphOp& op : {c.spmm(true), c.sddmm(), c.gat(0)}) {
        for (const Tensor& result : op.run(op.ours, at::kFloat)) EXPECT_EQ(max_abs(result), 0);
      }
    }
  }
}

TEST(Graph, ScoresOfMinusInfinityDoNotCount) {
  // Row 0 has edges to 0 and 1, row 1 to 1, row 2 to none.
  const auto graph = ops::build_graph(at::tensor({0, 2, 3, 3}), at::tensor({0, 1, 1}), 2, at::kCPU);
  const Tensor left = at::zeros({3, 1}), x = at::tensor({3.0F, 5.0F}).view({2, 1, 1});
  const Tensor right = at::tensor({0.0F, -std::numeric_limits<float>::infinity()}).view({2, 1});
  const Tensor out = ops::gat_attention(left, right, x, graph, 0.2, 0, 0);
  EXPECT_TRUE(at::equal(out.flatten(), at::tensor({3.0F, 0.0F, 0.0F})));
  const Tensor nan = at::full({2, 1}, std::nan(""));
  EXPECT_TRUE(ops::gat_attention(left, nan, x, graph, 0.2, 0, 0)[1].isnan().all().item<bool>());
}

TEST(Graph, LargeScoresDoNotOverflow) {
  at::manual_seed(9);
  GraphOp op = GraphCase{random_edges(40, 40), 2, 8}.gat(0);
  op.leaves[0].mul_(1e4);
  op.leaves[1].mul_(1e4);
  // A softmax of such scores is nearly 0 or 1. float32 rounds scores of 1e4 by 1e-3.
  const auto actual = op.run(op.ours, at::kFloat), expected = op.run(op.plain, at::kDouble);
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_LE(max_abs(actual[i].to(at::kDouble) - expected[i]), 1e-2 * (1 + max_abs(expected[i])))
        << i;
}

TEST(Graph, UnlistedElementsMayBeAnything) {
  at::manual_seed(10);
  const auto graph = ops::build_graph(at::tensor({0, 2, 4}), at::tensor({0, 2, 2, 3}), 5, at::kCPU);
  const Tensor left = random({2, 3}), right = random({5, 3}), x = random({5, 3, 4});
  const auto run = [&] {
    return std::vector{ops::gat_attention(left, right, x, graph, 0.2, 0, 0),
                       ops::spmm(std::nullopt, x, graph), ops::sddmm(x.slice(0, 2, 4), x, graph)};
  };
  const auto expected = run();
  for (const int64_t unlisted : {1, 4}) {
    right[unlisted].fill_(std::nan(""));
    x[unlisted].fill_(std::nan(""));
  }
  const auto actual = run();
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(actual[i], expected[i])) << i;
}

// The lists of one direction hold the given edges, and the parts cover the long rows.
void expect_lists(const ops::EdgeListArrays& lists, int64_t part_edges) {
  size_t part = 0;
  std::vector<int32_t> long_rows;
  for (size_t i = 0; i + 1 < lists.begin.size(); ++i) {
    if (lists.begin[i + 1] - lists.begin[i] <= part_edges) continue;
    EXPECT_EQ(lists.long_begin[long_rows.size()], part);
    long_rows.push_back(static_cast<int32_t>(i));
    for (int64_t e = lists.begin[i]; e < lists.begin[i + 1]; e += part_edges, ++part) {
      ASSERT_LT(part, lists.part_row.size());
      EXPECT_EQ(lists.part_row[part], i);
      EXPECT_EQ(lists.part_begin[part], e);
    }
  }
  EXPECT_EQ(part, lists.part_row.size());
  EXPECT_EQ(long_rows, lists.long_row);
  EXPECT_EQ(lists.long_begin.back(), part);
  EXPECT_GT(part, 0U);
}

TEST(Graph, ListsAndTranspose) {
  at::manual_seed(11);
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{60, 90}, {9000, 140000}}) {
    const oracle::Edges edges = random_edges(rows, columns);
    const Tensor counts = at::bincount(edges.row, {}, rows);
    const Tensor offsets = at::cat({at::zeros({1}, at::kLong), counts.cumsum(0)});
    const auto span = [](const Tensor& t) {
      return std::span(t.const_data_ptr<int64_t>(), static_cast<size_t>(t.numel()));
    };
    const ops::CsrGraph graph = ops::make_csr_graph(span(offsets), span(edges.column), columns);
    EXPECT_EQ(graph.part_edges, edges.row.numel() > 131072 ? 128 : 32);
    expect_lists(graph.by_row, graph.part_edges);
    expect_lists(graph.by_column, graph.part_edges);
    const int64_t* row = edges.row.const_data_ptr<int64_t>();
    const int64_t* column = edges.column.const_data_ptr<int64_t>();
    std::vector<bool> seen(edges.row.numel());
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t t = graph.by_column.begin[j]; t < graph.by_column.begin[j + 1]; ++t) {
        const int64_t e = graph.by_column.edge[t];
        EXPECT_EQ(column[e], j);
        EXPECT_EQ(row[e], graph.by_column.neighbour[t]);
        EXPECT_EQ(graph.by_row.neighbour[e], j);
        EXPECT_FALSE(seen[e]);
        seen[e] = true;
      }
    }
    EXPECT_EQ(std::ranges::count(seen, true), std::ssize(seen));
  }
}

TEST(Graph, WrongGraphsAreExplained) {
  const auto expect = [](std::vector<int64_t> offsets, std::vector<int64_t> column,
                         const std::string& text) {
    expect_error([&] { ops::build_graph(at::tensor(offsets), at::tensor(column), 4, at::kCPU); },
                 text);
  };
  expect({0, 2}, {3, 1}, "graph: row 0 lists column 1 after 3; expected ascending columns: sort");
  expect({0, 1, 2}, {3, 4}, "graph: row 1 lists column 4; expected 0 to 3");
  expect({0, 1}, {-1}, "graph: row 0 lists column -1; expected 0 to 3");
  expect({0, 3, 2}, {1, 2}, "offsets decreases from 3 to 2 at row 1; expected ascending offsets");
  expect({1, 2}, {1, 2}, "graph: offsets starts with 1; expected 0");
  expect({0, 1}, {1, 2}, "graph: offsets ends with 1 but there are 2 columns; they must be equal");
  expect({}, {}, "graph: offsets is empty; expected [rows + 1], starting with 0");
  expect_error([] { ops::build_graph(at::zeros({2}), at::zeros({0}, at::kLong), 4, at::kCPU); },
               "graph: offsets is Float; expected Long or Int (int64, int32)");
  expect_error(
      [] { ops::build_graph(at::zeros({2}, at::kInt), at::zeros({0, 2}, at::kInt), 4, at::kCPU); },
      "graph: columns is [0, 2] (2-D); expected [edges] (1-D)");
}

TEST(Graph, WrongArgumentsAreExplained) {
  auto graph = ops::build_graph(at::tensor({0, 2, 2, 3}), at::tensor({0, 3, 1}), 4, at::kCPU);
  const Tensor x = at::zeros({4, 2, 5}), rows = at::zeros({3, 2, 5});
  const Tensor left = at::zeros({3, 2}), right = at::zeros({4, 2});
  const auto gat = [&](const Tensor& l, const Tensor& r, const Tensor& features, double dropout) {
    return std::function<void()>(
        [=] { ops::gat_attention(l, r, features, graph, 0.2, dropout, 0); });
  };
  expect_error([&] { ops::spmm(std::nullopt, rows, graph); },
               "spmm: x is [3, 2, 5], but the graph has 4 columns; expected a row for each");
  expect_error([&] { ops::spmm(at::zeros({4, 2}), x, graph); },
               "spmm: weights is [4, 2]; expected [3, 2] ([edges of the graph, heads of x])");
  expect_error([&] { ops::spmm(at::zeros({3, 2}, at::kDouble), x, graph); },
               "spmm: weights is Double on cpu; expected Float on cpu, like x");
  expect_error([&] { ops::spmm(std::nullopt, x[0], graph); }, "expected [nodes, heads, d] (3-D)");
  expect_error([&] { ops::spmm(std::nullopt, x.slice(2, 0, 0), graph); },
               "spmm: x is [4, 2, 0]; expected one feature or more");
  expect_error([&] { ops::spmm(std::nullopt, x.to(at::kHalf), graph); },
               "spmm: x is Half; expected Float or Double on the CPU");
  expect_error([&] { ops::sddmm(x, x, graph); }, "sddmm: a is [4, 2, 5], but the graph has 3 rows");
  expect_error([&] { ops::sddmm(rows, x.slice(2, 0, 4), graph); },
               "sddmm: b is [4, 2, 4] but a is [3, 2, 5]; heads and features must match");
  expect_error(gat(right, right, x, 0),
               "gat_attention: a_l is [4, 2]; expected [3, 2] ([rows of the graph, heads of x])");
  expect_error(gat(left, left, x, 0), "gat_attention: a_r is [3, 2]; expected [4, 2]");
  expect_error(gat(left, right, rows, 0), "x is [3, 2, 5], but the graph has 4 columns");
  expect_error(gat(left, right, x, 1), "the dropout probability is 1; expected 0 <= p < 1");
  expect_error(gat(left.to(at::kDouble), right, x, 0), "a_l is Double on cpu; expected Float");
  graph.lists[1] = graph.lists[1].to(at::kLong);
  expect_error([&] { ops::spmm(std::nullopt, x, graph); },
               "spmm: neighbour is Long [3]; expected Int [3], contiguous");
  graph.lists.pop_back();
  expect_error([&] { ops::spmm(std::nullopt, x, graph); },
               "the graph has 12 lists and 3 sizes; expected 13 and 3, as in a Graph");
}

}  // namespace
}  // namespace seqfuse::graph_test
