#include "fusion/compile/gpu_function.h"

#include <dlfcn.h>

#include <limits>

#include "base/error.h"

namespace seqfuse::fusion {
namespace {

// The driver's functions that are needed, whose types are stable.
struct CudaDriver {
  int (*get_error_name)(int, const char**) = nullptr;
  int (*module_load)(void**, const void*) = nullptr;
  int (*get_function)(void**, void*, const char*) = nullptr;
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                void**, void**) = nullptr;

  CudaDriver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    find(library, "cuGetErrorName", get_error_name);
    find(library, "cuModuleLoadData", module_load);
    find(library, "cuModuleGetFunction", get_function);
    find(library, "cuLaunchKernel", launch);
  }

  static const CudaDriver& get() {
    static const CudaDriver driver;
    return driver;
  }

  void check(int status, const char* what, const std::string& name) const {
    if (status == 0) return;
    const char* error = nullptr;
    if (get_error_name == nullptr || get_error_name(status, &error) != 0) error = "unknown error";
    throw_error("the kernel {}: {} failed with {} ({})", name, what, error, status);
  }

 private:
  template <class F>
  static void find(void* library, const char* name, F& function) {
    function = reinterpret_cast<F>(dlsym(library, name));
  }
};

}  // namespace

GpuFunction::GpuFunction(const std::string& cubin, const std::string& name) : name_(name) {
  const CudaDriver& driver = CudaDriver::get();
  SEQFUSE_CHECK(driver.launch != nullptr, "the kernel {}: no NVIDIA driver (libcuda.so.1)", name);
  void* module = nullptr;
  driver.check(driver.module_load(&module, cubin.data()), "cuModuleLoadData", name);
  driver.check(driver.get_function(&function_, module, name.c_str()), "cuModuleGetFunction", name);
}

void GpuFunction::launch(int64_t blocks, int threads, void* stream, void** arguments) const {
  SEQFUSE_CHECK(blocks <= std::numeric_limits<int32_t>::max(),
                "the kernel {}: {} blocks; a launch has at most 2^31 - 1", name_, blocks);
  CudaDriver::get().check(
      CudaDriver::get().launch(function_, static_cast<unsigned>(blocks), 1, 1,
                               static_cast<unsigned>(threads), 1, 1, 0, stream, arguments, nullptr),
      "cuLaunchKernel", name_);
}

}  // namespace seqfuse::fusion
