// GAT attention. The backward pass writes ds and the weights of all edges, then sums over columns.
#include <cmath>
#include <limits>
#include <optional>

#include "ops/cpu/dispatch.h"
#include "ops/cpu/dropout_mask.h"
#include "ops/cpu/graph/edge_rows.h"
#include "ops/cpu/softmax_exp.h"
#include "ops/kernels/graph/edge_ops.h"

namespace seqfuse::ops {
namespace {

template <class T>
class GatScore {
 public:
  explicit GatScore(const GatParams& p)
      : heads_(p.heads),
        left_(static_cast<const T*>(p.left)),
        right_(static_cast<const T*>(p.right)),
        slope_(static_cast<T>(p.negative_slope)) {
    if (p.dropout > 0) mask_.emplace(p.seed.get(), p.dropout);
  }

  T slope_at(T sum) const { return sum > 0 ? T{1} : slope_; }
  // left + right of an edge.
  T sum_of(int64_t row, int64_t column, int64_t head) const {
    return left_[row * heads_ + head] + right_[column * heads_ + head];
  }

  // Dropout's factors of a row's edges [edges, heads]; null: all 1.
  const T* factors(const cpu::RowEdges& edges, T* space) const {
    if (!mask_) return nullptr;
    mask_->draw(edges.begin * heads_, edges.count * heads_, space);
    return space;
  }

  // weights = softmax of the scores of a row's edges. Returns their log-sum-exp.
  T softmax(int64_t row, const cpu::RowEdges& edges, int64_t head, T* weights) const {
    constexpr T kLowest = -std::numeric_limits<T>::infinity();
    for (int64_t e = 0; e < edges.count; ++e) {
      const T sum = sum_of(row, edges.neighbour[e], head);
      weights[e] = sum > 0 ? sum : slope_ * sum;
    }
    const T top = cpu::largest(weights, edges.count);
    // No edge counts. Not so if a score is NaN, which largest() ignores.
    if (top == kLowest &&
        std::none_of(weights, weights + edges.count, [](T score) { return std::isnan(score); })) {
      std::fill_n(weights, edges.count, T{0});
      return kLowest;
    }
    for (int64_t e = 0; e < edges.count; ++e) weights[e] = cpu::exp_or_zero(weights[e] - top);
    const T total = cpu::sum(weights, edges.count);
    for (int64_t e = 0; e < edges.count; ++e) weights[e] /= total;
    return top + std::log(total);
  }

 private:
  int64_t heads_;
  const T *left_, *right_;
  T slope_;
  std::optional<cpu::DropoutMask<T>> mask_;
};

template <class T>
void forward(const GatParams& p) {
  const GatScore<T> score(p);
  auto* lse = static_cast<T*>(p.lse);
  const EdgeLists& graph = p.graph.by_row;
  const int64_t heads = p.heads, dim = p.dim, stride = heads * dim;
  cpu::for_each_graph_row(graph, stride, [&](int64_t row) {
    const cpu::RowEdges edges(graph, row);
    cpu::Scratch& scratch = cpu::Scratch::fresh();
    T* weights = scratch.take<T>(edges.count);
    const T* kept = score.factors(edges, scratch.take<T>(p.dropout > 0 ? edges.count * heads : 0));
    for (int64_t h = 0; h < heads; ++h) {
      lse[row * heads + h] = score.softmax(row, edges, h, weights);
      for (int64_t e = 0; kept && e < edges.count; ++e) weights[e] *= kept[e * heads + h];
      cpu::add_neighbours_of(static_cast<const T*>(p.x) + h * dim, stride, dim, edges.neighbour,
                             weights, edges.count, static_cast<T*>(p.out) + row * stride + h * dim);
    }
  });
}

// ds and the weights with dropout, [edges, heads], and dleft.
template <class T>
void backward_rows(const GatParams& p, T* dscores, T* kept_weights) {
  const GatScore<T> score(p);
  const EdgeLists& graph = p.graph.by_row;
  const int64_t heads = p.heads, dim = p.dim, stride = heads * dim;
  cpu::for_each_graph_row(graph, stride, [&](int64_t row) {
    const cpu::RowEdges edges(graph, row);
    cpu::Scratch& scratch = cpu::Scratch::fresh();
    T* weights = scratch.take<T>(edges.count);
    const T* kept = score.factors(edges, scratch.take<T>(p.dropout > 0 ? edges.count * heads : 0));
    for (int64_t h = 0; h < heads; ++h) {
      const T* dout = static_cast<const T*>(p.dout) + row * stride + h * dim;
      const T delta =
          cpu::dot_product(dout, static_cast<const T*>(p.out) + row * stride + h * dim, dim);
      score.softmax(row, edges, h, weights);
      T dleft = 0;
      for (int64_t e = 0; e < edges.count; ++e) {
        const int64_t column = edges.neighbour[e], place = (edges.begin + e) * heads + h;
        const T factor = kept ? kept[e * heads + h] : T{1};
        const T* x = static_cast<const T*>(p.x) + column * stride + h * dim;
        const T ds = weights[e] * (factor * cpu::dot_product(dout, x, dim) - delta) *
                     score.slope_at(score.sum_of(row, column, h));
        dscores[place] = ds;
        kept_weights[place] = weights[e] * factor;
        dleft += ds;
      }
      static_cast<T*>(p.dleft)[row * heads + h] = dleft;
    }
  });
}

template <class T>
void backward(const GatParams& p) {
  const int64_t heads = p.heads, places = p.graph.by_row.edges * heads;
  cpu::AlignedBuffer<T> dscores(places), kept_weights(places);
  backward_rows(p, dscores.data(), kept_weights.data());
  cpu::sum_over_edges(p.graph.by_column, heads, p.dim, static_cast<const T*>(p.dout),
                      static_cast<T*>(p.dx),
                      [&](int64_t column, const cpu::RowEdges& edges, int64_t head, T* weights) {
                        T dright = 0;
                        for (int64_t e = 0; e < edges.count; ++e) {
                          const int64_t place = edges.number(e) * heads + head;
                          weights[e] = kept_weights[place];
                          dright += dscores[place];
                        }
                        static_cast<T*>(p.dright)[column * heads + head] = dright;
                      });
}

}  // namespace

void gat_forward_cpu(const GatParams& params, DType dtype) {
  cpu::dispatch(dtype, [&]<class T>(T) { forward<T>(params); });
}

void gat_backward_cpu(const GatParams& params, DType dtype) {
  cpu::dispatch(dtype, [&]<class T>(T) { backward<T>(params); });
}

}  // namespace seqfuse::ops
