// Seeds in GPU memory, for the engine only (not a dispatcher operator).
//
// A CUDA graph replays its kernels with the same arguments. Seeds differ from step to step, so
// kernels must read them from memory that is written before the graph runs.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "ops/kernels/step/seed.h"

namespace seqfuse::ops {

// While it exists, operators called on a GPU with one of these seeds, from any thread, have their
// kernels read the seed from its place. Another seed throws c10::Error. One object at a time.
class DeviceSeeds {
 public:
  // places: int64 [seeds.size()] on the GPU, with the seeds' values.
  DeviceSeeds(std::vector<int64_t> seeds, at::Tensor places);
  ~DeviceSeeds();
  DeviceSeeds(const DeviceSeeds&) = delete;
  DeviceSeeds& operator=(const DeviceSeeds&) = delete;

  const uint64_t* place_of(int64_t seed) const;

 private:
  std::vector<int64_t> seeds_;
  at::Tensor places_;
};

// The seed for a kernel on x: with its place if DeviceSeeds exist and x is on a GPU.
Seed kernel_seed(const at::Tensor& x, int64_t seed);

}  // namespace seqfuse::ops
