// Random graphs and features, for the tests on the CPU and on a GPU.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "ops/torch/graph/graph.h"
#include "tests/ops/op_test.h"
#include "tests/oracles/dropout.h"
#include "tests/oracles/edge_ops.h"

namespace seqfuse::test {

// Rows and columns of very different degrees: rows without edges, and, if there are more than 32
// columns and rows, long ones in both directions.
inline oracle::Edges random_edges(int64_t rows, int64_t columns, bool repeated = true) {
  std::vector<int64_t> row, column;
  const Tensor degrees = (at::rand({rows}, at::kDouble).pow(4) * 12).to(at::kLong);
  for (int64_t i = 0; i < rows; ++i) {
    std::vector<int64_t> listed;
    if (i == rows / 2 && rows > 3) {
      for (int64_t j = 0; j < columns; ++j) listed.push_back(j);
    } else if (i % 5 != 4) {
      const Tensor drawn = at::randint(columns, {degrees[i].item<int64_t>()}, at::kLong);
      for (int64_t k = 0; k < drawn.size(0); ++k) listed.push_back(drawn[k].item<int64_t>());
      if (columns > 3) listed.push_back(columns / 3);  // which so is a long column
      if (repeated && i % 3 == 0) listed.push_back(columns - 1), listed.push_back(columns - 1);
    }
    std::ranges::sort(listed);
    if (!repeated) listed.erase(std::ranges::unique(listed).begin(), listed.end());
    for (const int64_t j : listed) {
      row.push_back(i);
      column.push_back(j);
    }
  }
  return {at::tensor(row, at::kLong), at::tensor(column, at::kLong), rows, columns};
}

inline ops::GraphTensors graph_of(const oracle::Edges& edges, at::Device device = at::kCPU) {
  const Tensor counts = at::bincount(edges.row.cpu(), {}, edges.rows);
  const Tensor offsets = at::cat({at::zeros({1}, at::kLong), counts.cumsum(0)});
  return ops::build_graph(offsets, edges.column, edges.columns, device);
}

// An operator, ours and by the oracle, of leaves in one dtype on one device.
struct GraphOp {
  using Function = std::function<Tensor(const std::vector<Tensor>&)>;
  std::vector<Tensor> leaves;  // float64 on the CPU
  std::vector<const char*> names;
  Function ours, plain;
  // Terms of the gradients of scores that come from `out`, which is rounded.
  double terms_of_out = 0;

  std::vector<Tensor> run(const Function& f, const at::TensorOptions& type) const {
    std::vector<Tensor> in;
    for (const Tensor& leaf : leaves) in.push_back(leaf.to(type).detach().requires_grad_());
    const Tensor out = f(in);
    at::manual_seed(3);
    const Tensor dout = random(out.sizes()).to(at::kBFloat16).to(type);
    auto results = torch::autograd::grad({out}, in, {dout}, {}, false, /*allow_unused=*/true);
    for (size_t i = 0; i < in.size(); ++i)
      if (!results[i].defined()) results[i] = at::zeros_like(in[i]);
    results.insert(results.begin(), out.detach());
    return results;
  }

  // By the oracle rule, in each dtype. reference: as run(plain, at::kDouble).
  void check(const std::string& what, const std::vector<at::TensorOptions>& types,
             double largest_terms) const {
    const auto reference = run(plain, at::kDouble);
    for (const at::TensorOptions& type : types) {
      const auto actual = run(ours, type);
      const auto in_type = type.dtype() == at::kDouble ? reference : run(plain, type);
      for (size_t i = 0; i < actual.size(); ++i) {
        const std::string name = what + " " + (i == 0 ? "out" : names[i - 1]) + " " +
                                 std::string(toString(actual[i].scalar_type()));
        const bool short_type = actual[i].element_size() == 2;
        const double of_out =
            short_type && i > 0 && std::string_view(names[i - 1]).starts_with("da_")
                ? terms_of_out * (actual[i].scalar_type() == at::kHalf ? 0x1p-10 : 0x1p-7) / 0x1p-23
                : 0;
        expect_oracle_rule(actual[i], in_type[i], reference[i], i == 0 ? 2 : 5, name,
                           largest_terms + of_out);
      }
    }
  }
};

// Values that 16 bits hold, so that the float64 reference has the same inputs.
inline Tensor short_random(at::IntArrayRef sizes) {
  return random(sizes).to(at::kBFloat16).to(at::kDouble);
}

inline oracle::Edges on(const oracle::Edges& edges, at::Device device) {
  return {edges.row.to(device), edges.column.to(device), edges.rows, edges.columns};
}

struct GraphCase {
  oracle::Edges edges;
  int64_t heads, dim;

  // weighted: with weights, else ones.
  GraphOp spmm(bool weighted) const {
    GraphOp op{.leaves = {short_random({edges.columns, heads, dim})}, .names = {"dx"}};
    if (weighted) {
      op.leaves.push_back(short_random({edges.row.size(0), heads}));
      op.names.push_back("dweights");
    }
    const auto weights = [](const std::vector<Tensor>& in) {
      return in.size() > 1 ? std::optional<Tensor>(in[1]) : std::nullopt;
    };
    op.ours = [=, e = edges](const std::vector<Tensor>& in) {
      return ops::spmm(weights(in), in[0], graph_of(e, in[0].device()));
    };
    op.plain = [=, e = edges, h = heads](const std::vector<Tensor>& in) {
      const Tensor ones = at::ones({e.row.size(0), h}, in[0].options());
      return oracle::spmm(on(e, in[0].device()), weights(in).value_or(ones), in[0]);
    };
    return op;
  }

  GraphOp sddmm() const {
    return {.leaves = {short_random({edges.rows, heads, dim}),
                       short_random({edges.columns, heads, dim})},
            .names = {"da", "db"},
            .ours =
                [e = edges](const std::vector<Tensor>& in) {
                  return ops::sddmm(in[0], in[1], graph_of(e, in[0].device()));
                },
            .plain =
                [e = edges](const std::vector<Tensor>& in) {
                  return oracle::sddmm(on(e, in[0].device()), in[0], in[1]);
                }};
  }

  GraphOp gat(double dropout) const {
    constexpr uint64_t kSeed = 9;
    const Tensor factors = oracle::dropout_factors(edges.row.size(0) * heads, dropout, kSeed)
                               .view({edges.row.size(0), heads});
    return {.leaves = {short_random({edges.rows, heads}), short_random({edges.columns, heads}),
                       short_random({edges.columns, heads, dim})},
            .names = {"da_l", "da_r", "dx"},
            .ours =
                [=, e = edges](const std::vector<Tensor>& in) {
                  return ops::gat_attention(in[0], in[1], in[2], graph_of(e, in[0].device()), 0.2,
                                            dropout, kSeed);
                },
            .plain =
                [=, e = edges](const std::vector<Tensor>& in) {
                  return oracle::gat_attention(on(e, in[0].device()), in[0], in[1], in[2], 0.2,
                                               factors.to(in[0].options()));
                },
            .terms_of_out = static_cast<double>(dim) / 2};
  }

  // Each operator, in each dtype on its device.
  void check(const std::string& what, const std::vector<at::TensorOptions>& types) const {
    const std::string name = what + ", " + std::to_string(heads) + " x " + std::to_string(dim);
    const auto d = static_cast<double>(dim);
    spmm(false).check(name + ", spmm of ones", types, 16);
    spmm(true).check(name + ", spmm", types, 4 * d);
    sddmm().check(name + ", sddmm", types, 4 * d);
    // ds is a difference, and may cancel.
    gat(0).check(name + ", gat", types, 16 * d);
    gat(0.4).check(name + ", gat with dropout", types, 32 * d);
  }
};

}  // namespace seqfuse::test
