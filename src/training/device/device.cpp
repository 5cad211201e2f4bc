#include "training/device/device.h"

#include <torch/cuda.h>

#include <cstdlib>
#include <optional>

#ifdef SEQFUSE_HAS_CUDA
#include <c10/cuda/CUDAFunctions.h>
#endif

#include "base/error.h"
#include "base/gpu.h"
#include "base/log.h"

namespace seqfuse::training {

at::Device choose_device(const std::string& device, const std::string& required_sm, int index) {
  const at::Device cpu(at::kCPU);
  const bool must = device == "cuda" || !required_sm.empty();
  if (device == "cpu" && required_sm.empty()) return cpu;
  const std::string asked = required_sm.empty() ? "--device cuda" : "--require-sm " + required_sm;
  const GpuProbe probe = probe_gpus();
  if (probe.gpus.empty()) {
    if (!must) return cpu;
    throw_error<UsageError>("{}: there is no GPU ({}); --device cpu runs on the CPU", asked,
                            probe.absence);
  }
  SEQFUSE_CHECK_AS(
      UsageError, index < static_cast<int>(probe.gpus.size()),
      "this machine has {0} GPU(s), too few for process {1}: start at most {0} processes on it",
      probe.gpus.size(), index);
  const GpuCheck check =
      check_gpu(probe.gpus[index],
                required_sm.empty() ? std::nullopt : std::optional<std::string>(required_sm));
  if (!check.ok && must) throw Error(check.line);
  log::write(check.ok ? log::Level::info : log::Level::warning, "train", check.line);
  if (!check.ok || device == "cpu") return cpu;
#ifdef SEQFUSE_HAS_CUDA
  if (torch::cuda::is_available()) return {at::kCUDA, static_cast<at::DeviceIndex>(index)};
  const char* why = "PyTorch cannot use it: see `seqfuse doctor`";
#else
  const char* why = "this build has no CUDA kernels: build with nvcc and a CUDA build of PyTorch";
#endif
  if (must) throw_error<UsageError>("{}: there is a GPU, but {}", asked, why);
  log::warning("train", "there is a GPU, but {}; the CPU is used", why);
  return cpu;
}

void set_arithmetic(at::Device device, const config::TrainerArgs& args) {
  if (!device.is_cuda()) return;
#ifdef SEQFUSE_HAS_CUDA
  c10::cuda::set_device(device.index());  // kernels run on the current device
#endif
  auto& context = at::globalContext();
  context.setAllowTF32CuBLAS(args.allow_tf32);
  if (!args.deterministic) return;
  // cuBLAS is deterministic only with a fixed workspace size, and reads this variable at start.
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*replace=*/0);
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(
      false);  // tests show that operators write every element
}

}  // namespace seqfuse::training
