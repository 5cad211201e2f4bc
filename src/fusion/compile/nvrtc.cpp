#include "fusion/compile/nvrtc.h"

#include <dlfcn.h>
#include <link.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/error.h"

namespace seqfuse::fusion {
namespace {

constexpr std::array<const char*, 2> kNvrtcNames{"libnvrtc.so.13", "libnvrtc.so.12"};

// Folders of the process's libraries whose names contain one of these.
int add_folder(dl_phdr_info* info, size_t, void* folders) {
  const std::filesystem::path file = info->dlpi_name;
  const std::string name = file.filename().string();
  if (name.starts_with("libcudart") || name.starts_with("libcublasLt")) {
    static_cast<std::vector<std::filesystem::path>*>(folders)->push_back(file.parent_path());
  } else if (name.starts_with(
                 "libc10_cuda")) {  // torch/lib, beside the wheels of NVIDIA's libraries
    const auto packages = file.parent_path().parent_path().parent_path() / "nvidia";
    for (const char* wheel : {"cu13/lib", "cuda_nvrtc/lib"})
      static_cast<std::vector<std::filesystem::path>*>(folders)->push_back(packages / wheel);
  }
  return 0;
}

std::vector<std::string> candidates() {
  if (const char* chosen = std::getenv("SEQFUSE_NVRTC")) return {chosen};
  std::vector<std::string> files(kNvrtcNames.begin(), kNvrtcNames.end());
  std::vector<std::filesystem::path> folders;
  dl_iterate_phdr(add_folder, &folders);
  folders.emplace_back("/usr/local/cuda/lib64");
  for (const auto& folder : folders) {
    for (const char* name : kNvrtcNames) files.push_back((folder / name).string());
  }
  return files;
}

}  // namespace

template <class... Args>
int Nvrtc::call(const char* name, Args... args) const {
  auto* function = reinterpret_cast<int (*)(Args...)>(dlsym(library_, name));
  return function != nullptr ? function(args...) : -1;
}

const Nvrtc& Nvrtc::get() {
  static const Nvrtc nvrtc;
  return nvrtc;
}

Nvrtc::Nvrtc() {
  for (const std::string& file : candidates()) {
    library_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ != nullptr) break;
    if (absence_.empty()) absence_ = dlerror();
  }
  if (library_ == nullptr) {
    absence_ =
        "no NVRTC: " + absence_ + "; install CUDA's nvrtc, or set SEQFUSE_NVRTC to its library";
    return;
  }
  absence_.clear();
  int major = 0, minor = 0;
  if (call("nvrtcVersion", &major, &minor) != 0) {
    absence_ = "the library called libnvrtc has no nvrtcVersion: it is not NVRTC";
    return;
  }
  version_ = fmt::format("{}.{}", major, minor);
}

Nvrtc::Result Nvrtc::compile(const std::string& source, const std::string& name,
                             const std::string& architecture) const {
  if (!absence_.empty()) throw Error(absence_);
  void* program = nullptr;
  const std::string file = name + ".cu", target = "--gpu-architecture=" + architecture;
  const std::array<const char*, 2> options{target.c_str(), "--std=c++17"};
  const int created =
      call("nvrtcCreateProgram", &program, source.c_str(), file.c_str(), 0,
           static_cast<const char* const*>(nullptr), static_cast<const char* const*>(nullptr));
  SEQFUSE_CHECK(created == 0, "NVRTC {} refused {}: error {}", version_, file, created);
  const int compiled =
      call("nvrtcCompileProgram", program, static_cast<int>(options.size()), options.data());
  Result result;
  size_t size = 0;
  if (call("nvrtcGetProgramLogSize", program, &size) == 0 && size > 1) {
    result.log.resize(size);
    call("nvrtcGetProgramLog", program, result.log.data());
    result.log.resize(std::strlen(result.log.c_str()));
  }
  if (compiled == 0 && call("nvrtcGetCUBINSize", program, &size) == 0) {
    result.cubin.resize(size);
    if (call("nvrtcGetCUBIN", program, result.cubin.data()) != 0) result.cubin.clear();
  } else if (result.log.empty()) {
    result.log = fmt::format("NVRTC {}: error {}", version_, compiled);
  }
  call("nvrtcDestroyProgram", &program);
  return result;
}

}  // namespace seqfuse::fusion
