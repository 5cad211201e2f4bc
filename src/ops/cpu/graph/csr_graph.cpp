#include "ops/kernels/graph/csr_graph.h"

#include <limits>

#include "base/error.h"
#include "base/parallel.h"

namespace seqfuse::ops {
namespace {

void check_offsets(std::span<const int64_t> offsets, int64_t edges) {
  SEQFUSE_CHECK(!offsets.empty(), "graph: offsets is empty; expected [rows + 1], starting with 0");
  SEQFUSE_CHECK(offsets.front() == 0, "graph: offsets starts with {}; expected 0", offsets.front());
  for (size_t i = 1; i < offsets.size(); ++i) {
    SEQFUSE_CHECK(offsets[i - 1] <= offsets[i],
                  "graph: offsets decreases from {} to {} at row {}; expected ascending offsets",
                  offsets[i - 1], offsets[i], i - 1);
  }
  SEQFUSE_CHECK(offsets.back() == edges,
                "graph: offsets ends with {} but there are {} columns; they must be equal",
                offsets.back(), edges);
}

void check_columns(std::span<const int64_t> offsets, std::span<const int64_t> column,
                   int64_t columns) {
  parallel_for(std::ssize(offsets) - 1, 4096, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      for (int64_t e = offsets[i]; e < offsets[i + 1]; ++e) {
        SEQFUSE_CHECK(column[e] >= 0 && column[e] < columns,
                      "graph: row {} lists column {}; expected 0 to {}", i, column[e], columns - 1);
        SEQFUSE_CHECK(e == offsets[i] || column[e - 1] <= column[e],
                      "graph: row {} lists column {} after {}; expected ascending columns: sort "
                      "them, or use from_edges, which does",
                      i, column[e], column[e - 1]);
      }
    }
  });
}

void cut_long_rows(EdgeListArrays& lists, int64_t part_edges) {
  lists.long_begin.push_back(0);
  for (size_t i = 0; i + 1 < lists.begin.size(); ++i) {
    if (lists.begin[i + 1] - lists.begin[i] <= part_edges) continue;
    for (int64_t e = lists.begin[i]; e < lists.begin[i + 1]; e += part_edges) {
      lists.part_row.push_back(static_cast<int32_t>(i));
      lists.part_begin.push_back(e);
    }
    lists.long_row.push_back(static_cast<int32_t>(i));
    lists.long_begin.push_back(static_cast<int32_t>(lists.part_row.size()));
  }
}

// In order of the column, then of the row: a counting sort.
EdgeListArrays transposed(const EdgeListArrays& by_row, int64_t columns) {
  EdgeListArrays lists;
  lists.begin.resize(columns + 1);
  for (const int32_t j : by_row.neighbour) ++lists.begin[j + 1];
  for (int64_t j = 0; j < columns; ++j) lists.begin[j + 1] += lists.begin[j];
  std::vector<int64_t> next(lists.begin.begin(), lists.begin.end() - 1);
  lists.neighbour.resize(by_row.neighbour.size());
  lists.edge.resize(by_row.neighbour.size());
  for (size_t i = 0; i + 1 < by_row.begin.size(); ++i) {
    for (int64_t e = by_row.begin[i]; e < by_row.begin[i + 1]; ++e) {
      const int64_t place = next[by_row.neighbour[e]]++;
      lists.neighbour[place] = static_cast<int32_t>(i);
      lists.edge[place] = e;
    }
  }
  return lists;
}

}  // namespace

CsrGraph make_csr_graph(std::span<const int64_t> offsets, std::span<const int64_t> column,
                        int64_t columns) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  SEQFUSE_CHECK(std::ssize(offsets) <= kMost && columns >= 0 && columns <= kMost,
                "graph: {} rows and {} columns; expected 0 to {}", std::ssize(offsets) - 1, columns,
                kMost);
  check_offsets(offsets, std::ssize(column));
  check_columns(offsets, column, columns);
  CsrGraph graph{.rows = std::ssize(offsets) - 1,
                 .columns = columns,
                 .part_edges = part_edges_of(std::ssize(column))};
  graph.by_row.begin.assign(offsets.begin(), offsets.end());
  graph.by_row.neighbour.assign(column.begin(), column.end());
  graph.by_column = transposed(graph.by_row, columns);
  cut_long_rows(graph.by_row, graph.part_edges);
  cut_long_rows(graph.by_column, graph.part_edges);
  return graph;
}

}  // namespace seqfuse::ops
