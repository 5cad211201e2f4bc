// Which kernel computes a product with SiLU on a device, and how it is tiled.
#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.h"

namespace seqfuse::ops::gemm {

struct Problem {
  int64_t n = 0, k = 0;  // of gemm_silu.h
};

struct Config {
  const char* kernel = "";  // its name
  int architecture = 80;    // its folder
  int tile_m = 0, tile_n = 0, tile_k = 0;
  int stages = 0;        // slices of a and b in a block's shared memory
  int warps = 0;         // per block
  int blocks = 0;        // per SM
  int shared_bytes = 0;  // per block

  bool operator==(const Config&) const = default;
};

// "gemm_silu_kernel of sm80: tiles of 128 x 128, 32 of k at a time, 4 stages, 4 warps, 2 blocks per
// SM, 65536 bytes of shared memory"
std::string to_string(const Config& config);

// The only place that chooses. sm: 10 major + minor of the device. Throws std::runtime_error below
// 80.
Config choose_config(const Problem& problem, int sm);

// With SEQFUSE_LOG_KERNELS=1 in the environment: prints the choice to standard error, once per
// problem and config.
void log_choice(const Problem& problem, const Config& config, DType dtype);

}  // namespace seqfuse::ops::gemm
