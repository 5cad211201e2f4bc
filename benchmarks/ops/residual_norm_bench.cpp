// Norms fused with residual additions on CUDA, for decoding steps and prompts of GPT-NeoX shapes.
#include "benchmarks/ops/cuda_bench.h"
#include "ops/torch/ops.h"

namespace seqfuse::bench::residual_norm_bench {
namespace {

#ifdef SEQFUSE_HAS_CUDA
void add_cuda(int64_t rows, int64_t dim, at::ScalarType type, const char* type_name) {
  const auto inputs = [=] {
    const auto options = at::TensorOptions().device(at::kCUDA).dtype(type);
    std::vector<Tensor> in;
    for (int i = 0; i < 3; ++i) in.push_back(at::randn({rows, dim}, options));
    for (int i = 0; i < 4; ++i) in.push_back(at::randn({dim}, options));
    return in;
  };
  const std::string shape = std::to_string(rows) + "x" + std::to_string(dim) + "/" + type_name;
  const double matrix = static_cast<double>(rows * dim * c10::elementSize(type));
  compare_cuda("residual_norm/cuda/layer_norm_residual/" + shape, 3 * matrix, [=] {
    const auto in = inputs();
    return std::pair<Work, Work>{
        [=] { ops::layer_norm_residual(in[0], in[1], in[3], in[4], 1e-5); },
        [=] { at::layer_norm(in[0], {dim}, in[3], in[4], 1e-5) + in[1]; }};
  });
  compare_cuda("residual_norm/cuda/add_dual_layer_norm/" + shape, 6 * matrix, [=] {
    const auto in = inputs();
    return std::pair<Work, Work>{
        [=] { ops::add_dual_layer_norm({in[0], in[1], in[2]}, in[3], in[4], in[5], in[6], 1e-5); },
        [=] {
          const Tensor sum = in[0] + in[1] + in[2];
          at::layer_norm(sum, {dim}, in[3], in[4], 1e-5);
          at::layer_norm(sum, {dim}, in[5], in[6], 1e-5);
        }};
  });
}

[[maybe_unused]] const bool added = [] {
  for (const auto& [rows, dim] :
       {std::pair{int64_t{1}, int64_t{2560}}, {2048, 2560}, {16 * 4096, 2560}, {16 * 4096, 5120}}) {
    add_cuda(rows, dim, at::kHalf, "float16");
  }
  return true;
}();
#endif

}  // namespace
}  // namespace seqfuse::bench::residual_norm_bench
