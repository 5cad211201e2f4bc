// NVIDIA GPUs of this machine, as reported by the driver. Does not link CUDA.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace seqfuse {

struct Gpu {
  std::string name;          // "NVIDIA A100-SXM4-80GB"
  int major = 0, minor = 0;  // compute capability
  int64_t memory_bytes = 0;
};

struct GpuProbe {
  std::vector<Gpu> gpus;
  std::string driver_cuda;  // newest CUDA version that the driver runs, "13.0"; "" without a driver
  std::string absence;      // why gpus is empty
};

// Never throws; a machine without a driver has no GPUs.
GpuProbe probe_gpus();

// "A100" of "NVIDIA A100-SXM4-80GB"; names of consumer cards stay whole.
std::string short_gpu_name(const std::string& name);

struct GpuCheck {
  bool ok = false;
  std::string line;  // "[GPU Check] Detected A100 GPU (SM 8.0) - OK"
};

// Whether our kernels run on the GPU: SM 8.x and 9.0, or only required_sm ("8.0") if given. If not,
// the line says what is supported.
GpuCheck check_gpu(const Gpu& gpu, const std::optional<std::string>& required_sm = std::nullopt);

}  // namespace seqfuse
