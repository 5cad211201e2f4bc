// Operators over the edges of a graph: one form, score each edge, perhaps take the softmax of a row's
// scores, add up the neighbours' features with them.
//
//   weighted sums (SpMM)   out_ih = sum over edges e = (i, j) of w_eh x_jh
//   dot products (SDDMM)   out_eh = <a_ih, b_jh>
//   GAT attention          s_eh = LeakyReLU(l_ih + r_jh), p_eh = softmax of s over the edges of row i
//                          out_ih = sum of p_eh m_eh x_jh, with m the mask of dropout of p
//                          lse_ih = log sum exp s_eh
//   its gradients          g_eh = <dout_ih, x_jh>, delta_ih = <dout_ih, out_ih>
//                          ds_eh = p_eh (m_eh g_eh - delta_ih) LeakyReLU'(l_ih + r_jh)
//                          dl_ih, dr_jh = sums of ds over the row's and the column's edges
//                          dx_jh = sum over the column's edges of p_eh m_eh dout_ih
//
// A row without edges has the output 0 and lse -infinity; an edge whose score is -infinity does not
// count. LeakyReLU'(0) is the slope. m_eh is the factor of element e heads + h of dropout.h.
//
// T: float32 or float64 on the CPU; float32, float16 and bfloat16 on CUDA. S, the type of sums, lse
// and all arithmetic: float64 where T is, else float32. Matrices are contiguous; any size may be 0
// except dim. Outputs alias no input.
//
// Determinism: the same bits for any number of threads, and from run to run on CUDA: long rows are
// added up part by part in order, without atomics. Exactness: sums T1 on the CPU, else T2.
// Errors: the binding checks shapes and dtypes. CUDA: cudaErrorInvalidValue for another dtype, more
// than kMostFeatures features of a node, and in gat_attention for a dim over kMostGatDim.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/kernels/common/cuda_api.h"
#include "ops/kernels/graph/graph.h"
#include "ops/kernels/step/seed.h"

namespace seqfuse::ops {

struct EdgeSumParams {
  EdgeLists graph;
  int64_t heads, dim;
  const void* weights;         // T [edges, heads], by number of the edge; null: ones
  const void* x;               // T [neighbours, heads, dim]
  void* out;                   // T [rows, heads, dim]
  float* workspace = nullptr;  // CUDA: [graph.parts, heads, dim]
};

struct EdgeDotParams {
  EdgeLists graph;  // by row
  int64_t heads, dim;
  const void* a;  // T [rows, heads, dim]
  const void* b;  // T [columns, heads, dim]
  void* out;      // T [edges, heads]
};

struct GatParams {
  GraphView graph;
  int64_t heads, dim;
  double negative_slope;
  double dropout;  // 0 <= p < 1
  Seed seed;
  const void* left;            // T [rows, heads]
  const void* right;           // T [columns, heads]
  const void* x;               // T [columns, heads, dim]
  void* out;                   // T [rows, heads, dim]; the backward pass reads it and lse
  void* lse;                   // S [rows, heads]
  float* workspace = nullptr;  // CUDA: gat_workspace() floats, aligned to 16 bytes

  const void* dout = nullptr;  // T [rows, heads, dim]
  void* dleft = nullptr;       // T [rows, heads]
  void* dright = nullptr;      // T [columns, heads]
  void* dx = nullptr;          // T [columns, heads, dim]
};

inline constexpr int64_t kMostGatDim = 256;        // on CUDA
inline constexpr int64_t kMostFeatures = 1 << 28;  // on CUDA: heads times dim

// The floats that the passes need on CUDA.
constexpr int64_t gat_forward_workspace(const GatParams& p) {
  return p.graph.by_row.parts * p.heads * (p.dim + 2);
}
constexpr int64_t gat_backward_workspace(const GatParams& p) {
  return p.graph.by_row.rows * p.heads * 4 + p.graph.by_column.parts * p.heads * (p.dim + 1) +
         p.graph.by_row.edges * p.heads + p.graph.by_row.parts * p.heads;
}

void edge_sums_cpu(const EdgeSumParams& params, DType dtype);
void edge_dots_cpu(const EdgeDotParams& params, DType dtype);
void gat_forward_cpu(const GatParams& params, DType dtype);
void gat_backward_cpu(const GatParams& params, DType dtype);

#ifdef SEQFUSE_CUDA_API
// Enqueue on the stream of the current device; no allocation, no synchronisation.
cudaError_t edge_sums_cuda(const EdgeSumParams& params, DType dtype, cudaStream_t stream);
cudaError_t edge_dots_cuda(const EdgeDotParams& params, DType dtype, cudaStream_t stream);
cudaError_t gat_forward_cuda(const GatParams& params, DType dtype, cudaStream_t stream);
cudaError_t gat_backward_cuda(const GatParams& params, DType dtype, cudaStream_t stream);
#endif

}  // namespace seqfuse::ops
