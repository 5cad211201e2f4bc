// A compiled kernel in the driver, ready to be launched. Does not link CUDA.
#pragma once

#include <cstdint>
#include <string>

namespace seqfuse::fusion {

class GpuFunction {
 public:
  // Loads machine code into the current device's context, for as long as the process lives. Throws Error
  // with the driver's name of the error.
  GpuFunction(const std::string& cubin, const std::string& name);

  // Enqueues on a stream (a cudaStream_t). arguments: a pointer to each. Throws Error.
  void launch(int64_t blocks, int threads, void* stream, void** arguments) const;

 private:
  void* function_ = nullptr;
  std::string name_;
};

}  // namespace seqfuse::fusion
