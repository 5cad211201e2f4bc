#include "base/gpu.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace seqfuse {
namespace {

// Attribute numbers of the driver API, which are stable.
constexpr int kComputeCapabilityMajor = 75, kComputeCapabilityMinor = 76;

class Driver {
 public:
  Driver() : library_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {}
  ~Driver() {
    if (library_ != nullptr) dlclose(library_);
  }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  bool is_loaded() const { return library_ != nullptr; }

  // Calls a driver function. Returns its status, or -1 if the driver lacks the function.
  template <class... Args>
  int call(const char* name, Args... args) const {
    auto* function = reinterpret_cast<int (*)(Args...)>(dlsym(library_, name));
    return function != nullptr ? function(args...) : -1;
  }

 private:
  void* library_;
};

std::optional<Gpu> read_gpu(const Driver& driver, int index) {
  int device = 0;
  char name[256] = {};
  size_t memory = 0;
  Gpu gpu;
  if (driver.call("cuDeviceGet", &device, index) != 0 ||
      driver.call("cuDeviceGetName", &name[0], int{sizeof name - 1}, device) != 0 ||
      driver.call("cuDeviceGetAttribute", &gpu.major, kComputeCapabilityMajor, device) != 0 ||
      driver.call("cuDeviceGetAttribute", &gpu.minor, kComputeCapabilityMinor, device) != 0 ||
      driver.call("cuDeviceTotalMem_v2", &memory, device) != 0) {
    return std::nullopt;
  }
  gpu.name = name;
  gpu.memory_bytes = static_cast<int64_t>(memory);
  return gpu;
}

}  // namespace

GpuProbe probe_gpus() {
  GpuProbe probe;
  const Driver driver;
  if (!driver.is_loaded()) {
    probe.absence = "no NVIDIA driver (libcuda.so.1)";
    return probe;
  }
  int version = 0;
  if (driver.call("cuDriverGetVersion", &version) == 0) {
    probe.driver_cuda = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  }
  int count = 0;
  if (const int status = driver.call("cuInit", 0U); status != 0) {
    probe.absence = fmt::format("the NVIDIA driver does not start (cuInit returned {})", status);
    return probe;
  }
  driver.call("cuDeviceGetCount", &count);
  for (int i = 0; i < count; ++i) {
    if (auto gpu = read_gpu(driver, i)) probe.gpus.push_back(std::move(*gpu));
  }
  if (probe.gpus.empty()) probe.absence = "the NVIDIA driver shows no GPU";
  return probe;
}

std::string short_gpu_name(const std::string& name) {
  std::string result = name;
  for (const std::string prefix : {"NVIDIA ", "Tesla "}) {
    if (result.starts_with(prefix)) result.erase(0, prefix.size());
  }
  for (const std::string family : {"GeForce", "Quadro", "RTX", "TITAN"}) {
    if (result.starts_with(family)) return result;
  }
  return result.substr(0, result.find_first_of(" -"));
}

GpuCheck check_gpu(const Gpu& gpu, const std::optional<std::string>& required_sm) {
  const std::string sm = fmt::format("{}.{}", gpu.major, gpu.minor);
  const std::string detected =
      fmt::format("[GPU Check] Detected {} GPU (SM {})", short_gpu_name(gpu.name), sm);
  if (required_sm && *required_sm != sm) {
    return {false,
            fmt::format("{} - ERROR: SM {} is required (--require-sm)", detected, *required_sm)};
  }
  if (gpu.major == 8 || (gpu.major == 9 && gpu.minor == 0)) return {true, detected + " - OK"};
  return {false,
          fmt::format("{} - ERROR: not supported; kernels are built for SM 8.x (A100, A800, A30) "
                      "and SM 9.0 (H100, H200)",
                      detected)};
}

}  // namespace seqfuse
