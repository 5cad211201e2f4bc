// Makes the lists of a graph (graph.h) on the host, once for each graph.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/kernels/graph/graph.h"

namespace seqfuse::ops {

struct EdgeListArrays {
  std::vector<int64_t> begin;
  std::vector<int32_t> neighbour;
  std::vector<int64_t> edge;  // empty: an edge's number is its place
  std::vector<int32_t> part_row;
  std::vector<int64_t> part_begin;
  std::vector<int32_t> long_row, long_begin;
};

struct CsrGraph {
  EdgeListArrays by_row, by_column;
  int64_t rows = 0, columns = 0, part_edges = 0;
};

// Edges of a part of a long row: depends only on the number of edges, so that results do too. Small
// graphs have short parts, which keep the processors of a GPU busy.
constexpr int64_t part_edges_of(int64_t edges) {
  return edges <= int64_t{1} << 17 ? 32 : 128;
}

// offsets [rows + 1], from 0, ascending, to the length of column; row i lists the columns
// column[offsets[i]] to column[offsets[i + 1] - 1], ascending, each in [0, columns). A column may be
// listed more than once. Errors (seqfuse::Error): anything else; 2^31 rows or columns.
CsrGraph make_csr_graph(std::span<const int64_t> offsets, std::span<const int64_t> column,
                        int64_t columns);

}  // namespace seqfuse::ops
