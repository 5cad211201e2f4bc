// Operators over the edges of a graph, as differentiable functions of tensors; also registered as
// torch.ops.seqfuse.*. Formulas: kernels/graph/edge_ops.h. Errors (c10::Error) say what was given and
// what was expected.
//
// N: rows of the graph, M: its columns, E: edges, in order of row, then of column; H: heads. float32
// and float64 on the CPU; float32, float16 and bfloat16 on CUDA, with sums in float32.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "ops/kernels/graph/graph.h"

namespace seqfuse::ops {

using at::Tensor;

// A graph's lists as tensors on one device, made once for each graph: of the rows begin, neighbour,
// part_row, part_begin, long_row and long_begin of EdgeLists; of the columns the same with edge after
// neighbour. begin, edge and part_begin are int64, the others int32.
struct GraphTensors {
  std::vector<Tensor> lists;
  int64_t rows = 0, columns = 0, part_edges = 1;
};

// Row i lists column[offsets[i]] to column[offsets[i + 1] - 1], ascending. offsets [N + 1] and column
// [E]: int64 or int32 on any device; checked and transposed on the CPU.
GraphTensors build_graph(const Tensor& offsets, const Tensor& column, int64_t columns,
                         at::Device device);

// weights [E, H] or none (ones), x [M, H, d] -> [N, H, d]: out_i = sum over edges e = (i, j) of w_e
// x_j. Differentiable in both.
Tensor spmm(const std::optional<Tensor>& weights, const Tensor& x, const GraphTensors& graph);

// a [N, H, d], b [M, H, d] -> [E, H]: out_e = <a_i, b_j>. Differentiable in both.
Tensor sddmm(const Tensor& a, const Tensor& b, const GraphTensors& graph);

// left [N, H], right [M, H], x [M, H, d] -> [N, H, d]: the sum of x_j weighted by the softmax, over the
// edges of a row, of LeakyReLU(left_i + right_j). dropout: of these weights, by seed. Differentiable in
// all three. On CUDA d is at most 256.
Tensor gat_attention(const Tensor& left, const Tensor& right, const Tensor& x,
                     const GraphTensors& graph, double negative_slope, double dropout,
                     int64_t seed);

// ---- for the bindings
// The arguments of a graph's operators that have no gradient.
struct GraphArguments {
  std::vector<Tensor> lists;
  std::vector<c10::SymInt> sizes;  // rows, columns, part_edges
};

// The lists of an operator's arguments: their sizes, dtypes and device are checked, values trusted.
GraphView checked_graph(const char* op, at::TensorList lists, at::IntArrayRef sizes,
                        at::Device device);

inline constexpr const char* kGraphSchema = "Tensor[] graph, SymInt[] graph_sizes";
inline constexpr size_t kNeighbourList = 1;  // of GraphTensors::lists: as long as there are edges

}  // namespace seqfuse::ops
