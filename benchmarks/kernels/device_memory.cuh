// Memory of the GPU that ends with its scope.
#pragma once

#include <algorithm>
#include <vector>

#include "benchmarks/kernels/kernel_bench.cuh"

namespace seqfuse::bench {

template <class T>
struct Device {
  T* data = nullptr;
  size_t size = 0;

  explicit Device(size_t n) : size(n) {
    must(cudaMalloc(&data, std::max<size_t>(n, 1) * sizeof(T)), "cudaMalloc");
    must(cudaMemset(data, 0, n * sizeof(T)), "cudaMemset");
  }
  explicit Device(const std::vector<T>& from) : Device(from.size()) {
    must(cudaMemcpy(data, from.data(), size * sizeof(T), cudaMemcpyHostToDevice), "copy");
  }
  Device(const Device&) = delete;
  ~Device() { cudaFree(data); }
  std::vector<T> host() const {
    std::vector<T> to(size);
    must(cudaMemcpy(to.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost), "copy");
    return to;
  }
};

}  // namespace seqfuse::bench
