// Seeds in a GPU's memory, for the engine: no operator of the dispatcher.
//
// A CUDA graph repeats the arguments of its kernels. Seeds, which differ from step to step, must
// therefore be read by the kernels from memory that is written before the graph runs.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "ops/kernels/step/seed.h"

namespace seqfuse::ops {

// While it lives, operators that are called with one of these seeds on a GPU, from any thread, have
// their kernels read it from its place. With another seed they throw c10::Error. One at a time.
class DeviceSeeds {
 public:
  // places: int64 [seeds.size()] on the GPU, which holds the seeds.
  DeviceSeeds(std::vector<int64_t> seeds, at::Tensor places);
  ~DeviceSeeds();
  DeviceSeeds(const DeviceSeeds&) = delete;
  DeviceSeeds& operator=(const DeviceSeeds&) = delete;

  const uint64_t* place_of(int64_t seed) const;

 private:
  std::vector<int64_t> seeds_;
  at::Tensor places_;
};

// For the kernel of an operator on x: with its place where there are DeviceSeeds, but not on the
// CPU.
Seed kernel_seed(const at::Tensor& x, int64_t seed);

}  // namespace seqfuse::ops
