#include "models/bert/generated_run.h"

#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "fusion/codegen/source.h"
#include "ops/torch/cuda.h"

namespace seqfuse::models::bert {
namespace {

using at::Tensor;
using fusion::Operand;

const Tensor& bias_of(const LayerRun& layer, fusion::Segment run) {
  for (int op = run.first; op <= run.last; ++op) {
    switch (static_cast<Op>(op)) {
      case Op::bias0_split:
        return layer.weights.bias0;
      case Op::bias1_residual:
        return layer.weights.bias1;
      case Op::bias2_gelu:
        return layer.weights.bias2;
      case Op::bias3_residual:
        return layer.weights.bias3;
      default:
        break;
    }
  }
  throw_error("operators {} to {} have no bias", run.first, run.last);
}

Tensor operand_of(const LayerRun& layer, fusion::Segment run, Operand operand) {
  const bool second = run.last > index_of(Op::layer_norm1);
  switch (operand) {
    case Operand::input:
      return layer.outputs[static_cast<size_t>(kGraph[static_cast<size_t>(run.first)].reads[0])];
    case Operand::mask:
      return layer.dense_mask;
    case Operand::bias:
      return bias_of(layer, run);
    case Operand::residual:
      return second ? layer.of(Op::layer_norm1) : layer.input;
    case Operand::norm_weight:
      return second ? layer.weights.norm2_weight : layer.weights.norm1_weight;
    case Operand::norm_bias:
      return second ? layer.weights.norm2_bias : layer.weights.norm1_bias;
    case Operand::output:
      break;
  }
  return {};
}

#ifdef SEQFUSE_HAS_CUDA
std::string architecture_of(int device) {
  int major = 0, minor = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return fmt::format("sm_{}{}", major, minor);
}

// Loaded once for all programs of the process.
std::shared_ptr<const fusion::GpuFunction> function_of(const std::string& source,
                                                       const std::string& name, int device,
                                                       const fusion::KernelCache& cache) {
  static std::mutex mutex;
  static std::map<std::pair<int, std::string>, std::shared_ptr<const fusion::GpuFunction>> known;
  const std::lock_guard lock(mutex);
  auto& function = known[{device, source}];
  if (function) return function;
  const std::string architecture = architecture_of(device);
  std::string cubin = cache.cubin(source, name, architecture);
  try {
    function = std::make_shared<const fusion::GpuFunction>(cubin, name);
  } catch (const Error&) {  // a damaged file, perhaps
    cubin = cache.compile_again(source, name, architecture);
    function = std::make_shared<const fusion::GpuFunction>(cubin, name);
  }
  return function;
}
#endif

}  // namespace

at::Tensor run_by_aten(const LayerRun& layer, fusion::Segment run) {
  LayerRun inner = layer;
  for (int op = run.first; op <= run.last; ++op) {
    inner.outputs[static_cast<size_t>(op)] =
        unfused().segments()[static_cast<size_t>(op)].run(inner);
  }
  return inner.outputs[static_cast<size_t>(run.last)];
}

fusion::RowKernel row_kernel(fusion::Segment run, const Config& config, DType dtype,
                             int64_t columns) {
  using fusion::ActivationKind;
  return {.run = run,
          .dtype = dtype,
          .columns = columns,
          .heads = config.num_heads,
          .head_dim = config.head_dim(),
          .activation = config.activation == Activation::gelu_erf    ? ActivationKind::gelu_erf
                        : config.activation == Activation::gelu_tanh ? ActivationKind::gelu_tanh
                                                                     : ActivationKind::relu,
          .epsilon = config.layer_norm_eps};
}

struct GeneratedRun::Kernel {
  std::shared_ptr<const fusion::GpuFunction> function;  // null: could not be made
  fusion::Tile tile;
};

std::shared_ptr<const GeneratedRun::Kernel> GeneratedRun::kernel_for(
    const fusion::RowKernel& description, [[maybe_unused]] int device) {
  const std::lock_guard lock(mutex_);
  auto& kernel = kernels_[{device, description.columns}];
  if (kernel) return kernel;
  Kernel made;
  try {
    made.tile = tile_ ? *tile_ : fusion::default_tile(description);
    const std::string source = fusion::source_of(description, made.tile);
#ifdef SEQFUSE_HAS_CUDA
    made.function = function_of(source, fusion::name_of(run_), device, cache_);
#else
    throw_error("this build has no CUDA");
#endif
  } catch (const Error& error) {
    failure_ = error.what();
    log::warning("kernels", "{}; plain PyTorch runs instead", failure_);
  }
  kernel = std::make_shared<const Kernel>(std::move(made));
  return kernel;
}

std::string GeneratedRun::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

Tensor GeneratedRun::operator()(const LayerRun& layer) {
  const Tensor input = operand_of(layer, run_, Operand::input).contiguous();
  const ops::DeviceGuard guard(input);
  const bool transposes = run_.first == index_of(Op::transpose);
  const Tensor output =
      transposes ? at::empty({layer.rows.count(), layer.config.hidden_size}, input.options())
                 : at::empty(input.sizes(), input.options());
  if (output.numel() == 0) return output;
  const int64_t columns = output.size(-1);
  const auto kernel =
      kernel_for(row_kernel(run_, layer.config, ops::dtype_of(input), columns), input.get_device());
  if (!kernel->function) return run_by_aten(layer, run_);

  std::vector<Tensor> kept;  // while the kernel is enqueued
  std::vector<const void*> pointers;
  for (const Operand operand : fusion::operands_of(run_)) {
    Tensor tensor = operand == Operand::output  ? output
                    : operand == Operand::input ? input
                                                : operand_of(layer, run_, operand).contiguous();
    // Pieces are loaded 16 bytes at a time. Tensors of their own are aligned, views need not be.
    if (reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 != 0) tensor = tensor.clone();
    pointers.push_back(tensor.const_data_ptr());
    kept.push_back(std::move(tensor));
  }
  long long rows = output.numel() / columns;
  long long extra = 0;
  if (transposes) extra = layer.rows.length;
  if (run_.first == index_of(Op::mask) && layer.dense_mask.size(0) > 1) extra = layer.rows.length;
  std::vector<void*> arguments;
  for (const void*& pointer : pointers) arguments.push_back(&pointer);
  arguments.push_back(&rows);
  arguments.push_back(&extra);  // not read where the kernel has no such number
#ifdef SEQFUSE_HAS_CUDA
  kernel->function->launch((rows + kernel->tile.rows - 1) / kernel->tile.rows, kernel->tile.threads,
                           c10::cuda::getCurrentCUDAStream().stream(), arguments.data());
#endif
  return output;
}

}  // namespace seqfuse::models::bert
