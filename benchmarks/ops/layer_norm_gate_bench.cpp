// The gate of an HSTU layer, dropout(u * layer_norm(o)), at the batches of ml_1m_hstu.gin and of
// ranking, on the CPU and on CUDA.
#include "benchmarks/ops/cuda_bench.h"
#include "ops/torch/ops.h"

namespace seqfuse::bench::layer_norm_gate_bench {
namespace {

Tensor ours(const std::vector<Tensor>& in) {
  return ops::layer_norm_gate(in[0], in[1], in[2], in[3], 1e-6, .2, 1);
}

Tensor plain(const std::vector<Tensor>& in) {
  return at::dropout(in[1] * at::layer_norm(in[0], {in[0].size(1)}, in[2], in[3], 1e-6), .2, true);
}

std::vector<Tensor> make_inputs(int64_t rows, int64_t dim, at::TensorOptions options = {}) {
  return {at::randn({rows, dim}, options), at::randn({rows, dim}, options),
          at::randn({dim}, options), at::randn({dim}, options)};
}

std::string shape_name(int64_t rows, int64_t dim) {
  return std::to_string(rows) + "x" + std::to_string(dim);
}

void add(int64_t rows, int64_t dim) {
  const double matrix = static_cast<double>(rows * dim * 4);
  compare("layer_norm_gate/forward/" + shape_name(rows, dim), 3 * matrix, [=] {
    const auto in = make_inputs(rows, dim);
    return std::pair<Work, Work>{[=] { benchmark::DoNotOptimize(ours(in)); },
                                 [=] { benchmark::DoNotOptimize(plain(in)); }};
  });
  compare("layer_norm_gate/forward_backward/" + shape_name(rows, dim), 8 * matrix, [=] {
    const auto in = make_inputs(rows, dim);
    return std::pair<Work, Work>{with_backward(ours, in), with_backward(plain, in)};
  });
}

#ifdef SEQFUSE_HAS_CUDA
void add_cuda(int64_t rows, int64_t dim, at::ScalarType type, const char* type_name) {
  const auto inputs = [=] {
    return make_inputs(rows, dim, at::TensorOptions().device(at::kCUDA).dtype(type));
  };
  const std::string shape = shape_name(rows, dim) + "/" + type_name;
  const double matrix = static_cast<double>(rows * dim * c10::elementSize(type));
  compare_cuda("layer_norm_gate/cuda/forward/" + shape, 3 * matrix, [=] {
    const auto in = inputs();
    return std::pair<Work, Work>{[=] { ours(in); }, [=] { plain(in); }};
  });
  compare_cuda("layer_norm_gate/cuda/backward/" + shape, 5 * matrix, [=] {
    const auto in = inputs();
    return std::pair<Work, Work>{backward_alone(ours, in), backward_alone(plain, in)};
  });
}
#endif

[[maybe_unused]] const bool added = [] {
  add(21000, 50);
  add(8192, 512);
#ifdef SEQFUSE_HAS_CUDA
  for (const auto& [rows, dim] : {std::pair{int64_t{25600}, int64_t{50}},
                                  {262144, 64},
                                  {131072, 256},
                                  {65536, 512},
                                  {65536, 1024}}) {
    for (const auto& [type, type_name] : kCudaTypes) add_cuda(rows, dim, type, type_name);
  }
#endif
  return true;
}();

}  // namespace
}  // namespace seqfuse::bench::layer_norm_gate_bench
