// Weighted sums and dot products over the edges of a graph.
#include "ops/cpu/dispatch.h"
#include "ops/cpu/graph/edge_rows.h"
#include "ops/kernels/graph/edge_ops.h"

namespace seqfuse::ops {

void edge_sums_cpu(const EdgeSumParams& p, DType dtype) {
  cpu::dispatch(dtype, [&]<class T>(T) {
    const auto* given = static_cast<const T*>(p.weights);
    cpu::sum_over_edges(p.graph, p.heads, p.dim, static_cast<const T*>(p.x), static_cast<T*>(p.out),
                        [&](int64_t, const cpu::RowEdges& edges, int64_t head, T* weights) {
                          for (int64_t e = 0; e < edges.count; ++e)
                            weights[e] = given ? given[edges.number(e) * p.heads + head] : T{1};
                        });
  });
}

void edge_dots_cpu(const EdgeDotParams& p, DType dtype) {
  cpu::dispatch(dtype, [&]<class T>(T) {
    const int64_t stride = p.heads * p.dim;
    cpu::for_each_graph_row(p.graph, stride, [&](int64_t row) {
      const cpu::RowEdges edges(p.graph, row);
      const T* a = static_cast<const T*>(p.a) + row * stride;
      for (int64_t e = 0; e < edges.count; ++e) {
        const T* b = static_cast<const T*>(p.b) + edges.neighbour[e] * stride;
        T* out = static_cast<T*>(p.out) + edges.number(e) * p.heads;
        for (int64_t h = 0; h < p.heads; ++h)
          out[h] = cpu::dot_product(a + h * p.dim, b + h * p.dim, p.dim);
      }
    });
  });
}

}  // namespace seqfuse::ops
