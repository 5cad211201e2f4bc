// Loops over the rows of a graph, and over the neighbours of a row. Include only in this folder (see
// row_vectors.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/parallel.h"
#include "ops/cpu/row_vectors.h"
#include "ops/cpu/scratch.h"
#include "ops/kernels/common/host_device.h"
#include "ops/kernels/graph/graph.h"

namespace seqfuse::ops::cpu {

// body(row) for each row, in parallel. Tasks have about as many edges each, whatever the degrees, and
// depend only on the graph. features: elements that an edge reads.
template <class Body>
void for_each_graph_row(const EdgeLists& graph, int64_t features, Body&& body) {
  constexpr int64_t kWorth = 65536, kMostTasks = 256;
  const int64_t work = graph.rows + graph.edges;
  const int64_t tasks = std::clamp<int64_t>(
      static_cast<int64_t>(static_cast<double>(work) * static_cast<double>(features) / kWorth), 1,
      kMostTasks);
  // The first row that starts at or after a share of the work.
  const auto row_at = [&](int64_t share) {
    int64_t low = 0, high = graph.rows;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (middle + graph.begin[middle] < share) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  };
  parallel_tasks(tasks, [&](int64_t task) {
    const int64_t end = task + 1 == tasks ? graph.rows : row_at(work / tasks * (task + 1));
    for (int64_t row = row_at(work / tasks * task); row < end; ++row) body(row);
  });
}

namespace detail {
template <class T, int Lanes>
struct Few {
  typedef T type __attribute__((vector_size(Lanes * sizeof(T))));
};

template <int Lanes, class T>
inline typename Few<T, Lanes>::type load_few(const T* from) {
  typename Few<T, Lanes>::type v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

// out[0, N registers of Lanes) = sum of weights[e] x[neighbour[e]], e ascending.
template <int N, int Lanes, class T>
inline void add_registers(const T* x, int64_t stride, const int32_t* neighbour, const T* weights,
                          int64_t edges, T* out) {
  typename Few<T, Lanes>::type sums[N]{};
  for (int64_t e = 0; e < edges; ++e) {
    const T* row = x + neighbour[e] * stride;
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) sums[n] += weights[e] * load_few<Lanes>(row + n * Lanes);
  }
  std::memcpy(out, sums, sizeof sums);
}

// body(Constant<lanes>, column) for the columns of dim in pieces of a register, then of half, a
// quarter and so on, down to 4 elements, then one by one.
template <int Lanes, class Body>
inline void for_each_piece(int64_t column, int64_t dim, Body&& body) {
  for (; column + Lanes <= dim; column += Lanes) body(Constant<Lanes>{}, column);
  if constexpr (Lanes > 1) for_each_piece<(Lanes > 4 ? Lanes / 2 : 1)>(column, dim, body);
}
}  // namespace detail

// out[dim] = sum over the edges of a row of weights[e] x[neighbour[e]], in order.
template <class T>
void add_neighbours_of(const T* x, int64_t stride, int64_t dim, const int32_t* neighbour,
                       const T* weights, int64_t edges, T* out) {
  constexpr int kOne = kLanes<T>;
  int64_t c = 0;
  for (; c + 4 * kOne <= dim; c += 4 * kOne)
    detail::add_registers<4, kOne>(x + c, stride, neighbour, weights, edges, out + c);
  detail::for_each_piece<kOne>(c, dim, [&](auto lanes, int64_t at) {
    detail::add_registers<1, lanes.value>(x + at, stride, neighbour, weights, edges, out + at);
  });
}

template <class T>
inline T dot_product(const T* a, const T* b, int64_t dim) {
  T result = 0;
  Vector<T> lanes{};
  int64_t c = 0;
  for (; c + kLanes<T> <= dim; c += kLanes<T>) lanes += load(a + c) * load(b + c);
  if (c > 0) result = sum<T>(lanes);
  detail::for_each_piece<kLanes<T>>(c, dim, [&](auto few, int64_t at) {
    const auto products = detail::load_few<few.value>(a + at) * detail::load_few<few.value>(b + at);
    for (int i = 0; i < few.value; ++i) result += products[i];
  });
  return result;
}

// The edges of one row: their number, neighbours, and numbers.
struct RowEdges {
  RowEdges(const EdgeLists& graph, int64_t row)
      : begin(graph.begin[row]),
        count(graph.begin[row + 1] - begin),
        neighbour(graph.neighbour + begin),
        edge(graph.edge ? graph.edge + begin : nullptr) {}

  int64_t number(int64_t e) const { return edge ? edge[e] : begin + e; }

  int64_t begin, count;
  const int32_t* neighbour;
  const int64_t* edge;
};

// The operator over edges: out_ih = sum over the row's edges of w_e x_jh. score(row, edges, head, w)
// writes the weights of a row's edges: given ones, or the softmax of scores.
template <class T, class Score>
void sum_over_edges(const EdgeLists& graph, int64_t heads, int64_t dim, const T* x, T* out,
                    Score&& score) {
  const int64_t stride = heads * dim;
  for_each_graph_row(graph, stride, [&](int64_t row) {
    const RowEdges edges(graph, row);
    T* weights = Scratch::fresh().take<T>(edges.count);
    for (int64_t h = 0; h < heads; ++h) {
      score(row, edges, h, weights);
      add_neighbours_of(x + h * dim, stride, dim, edges.neighbour, weights, edges.count,
                        out + row * stride + h * dim);
    }
  });
}

}  // namespace seqfuse::ops::cpu
