// Which attention kernel runs a problem on a device, and how it is tiled.
#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.h"

namespace seqfuse::ops::attention {

// The kernels. A backward pass runs `backward`; in deterministic mode also `backward_queries`; for
// gradients of biases also `bias_gradient`.
enum class Pass {
  forward,
  backward,          // dk, dv and the sums of dq
  backward_queries,  // only dq
  bias_gradient,
};

struct Problem {
  Pass pass = Pass::forward;
  int head_dim = 0;  // 1 to 256
  bool biased = false;
  // Whether rows and heads of the pass's inputs (q, k, v; backward: also dout) and outputs allow
  // 16-byte loads and stores.
  bool aligned_inputs = true, aligned_outputs = true;
};

struct Device {
  int sm = 80;          // 10 major + minor
  int block_bytes = 0;  // shared memory available to a block
};

struct Config {
  const char* kernel = "";  // function name
  int architecture = 80;    // its folder
  int head_dim = 0;         // of tiles: the problem's, rounded up
  int tile_queries = 0, tile_keys = 0;
  int stages = 0;        // tiles of each kind in a block's shared memory
  int warps = 0;         // per block
  int blocks = 0;        // per SM
  int shared_bytes = 0;  // per block

  bool operator==(const Config&) const = default;
};

// "forward_kernel of sm80: head_dim 64, tiles of 128 queries and 64 keys, 3 stages, 4 warps, 2
// blocks per SM, 42240 bytes of shared memory"
std::string to_string(const Config& config);

// The only place that chooses kernels. head_dim in [1, 256]; block_bytes at least 99 KiB.
Config choose_config(const Problem& problem, const Device& device);

// head_dim rounded up to the width of tiles, the same on all devices.
int tile_width(int head_dim);

// The smallest tile height in rows of the pass's lists on any device; workspaces are sized for it.
int least_tile_rows(Pass pass, int head_dim);

// With SEQFUSE_LOG_KERNELS=1 in the environment: prints the choice to standard error, once per
// problem and config.
void log_choice(const Problem& problem, const Config& config, DType dtype);

}  // namespace seqfuse::ops::attention
