// NVRTC, NVIDIA's compiler as a library: CUDA source to machine code. Needs no GPU. Loaded when first used.
#pragma once

#include <string>

namespace seqfuse::fusion {

class Nvrtc {
 public:
  // The library of this process: $SEQFUSE_NVRTC if set; else the loader's libnvrtc.so.13 or .12, then those
  // beside the CUDA libraries that are loaded and in /usr/local/cuda.
  static const Nvrtc& get();

  // Why there is none; "" if there is.
  const std::string& absence() const { return absence_; }
  // "13.0"
  const std::string& version() const { return version_; }

  struct Result {
    std::string cubin;  // "": it did not compile
    std::string log;    // what the compiler said
  };
  // architecture: "sm_90". Throws Error if there is no NVRTC.
  Result compile(const std::string& source, const std::string& name,
                 const std::string& architecture) const;

 private:
  Nvrtc();
  template <class... Args>
  int call(const char* name, Args... args) const;

  void* library_ = nullptr;
  std::string absence_, version_;
};

}  // namespace seqfuse::fusion
