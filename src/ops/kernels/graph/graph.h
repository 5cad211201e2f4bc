// A graph as sparse rows (CSR) and its transpose: what the operators over edges read.
//
// Row i receives from the columns that it lists. An edge is a place in the list of all rows'
// columns; its number is that place, in both directions. Rows and columns are below 2^31, edges need
// not be.
//
// A row of more than part_edges edges is a long row. It is cut into parts of part_edges edges, the
// last one shorter; kernels compute the parts as if they were rows and add them up in order.
#pragma once

#include <cstdint>

namespace seqfuse::ops {

// One direction: the edges of each row (or column), in ascending order of the neighbour. Host or
// device pointers.
struct EdgeLists {
  int64_t rows = 0, edges = 0;
  const int64_t* begin = nullptr;      // [rows + 1], from 0 to edges
  const int32_t* neighbour = nullptr;  // [edges]: the column of a row's edge
  const int64_t* edge = nullptr;       // [edges]: its number; null: its place in this list
  int64_t part_edges = 1;
  int64_t parts = 0, long_rows = 0;
  const int32_t* part_row = nullptr;    // [parts], ascending
  const int64_t* part_begin = nullptr;  // [parts]: the first edge
  const int32_t* long_row = nullptr;    // [long_rows], ascending
  const int32_t* long_begin = nullptr;  // [long_rows + 1]: the first part of each
};

struct GraphView {
  EdgeLists by_row;
  EdgeLists by_column;  // rows of this direction are the graph's columns
};

}  // namespace seqfuse::ops
