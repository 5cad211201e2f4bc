// Which attention kernel runs a problem on a device, and how it is tiled.
#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.h"

namespace seqfuse::ops::attention {

// What a kernel computes. The backward pass is the second, or the second and third where results are
// to be deterministic; gradients of biases take the fourth as well.
enum class Pass {
  forward,
  backward,          // dk, dv and the sums of dq
  backward_queries,  // dq alone
  bias_gradient,
};

struct Problem {
  Pass pass = Pass::forward;
  int head_dim = 0;  // 1 to 256
  bool biased = false;
  // Rows and heads of what the pass reads (q, k, v, and dout in the backward pass), and of what it
  // writes, can be moved 16 bytes at a time.
  bool aligned_inputs = true, aligned_outputs = true;
};

struct Device {
  int sm = 80;          // 10 major + minor
  int block_bytes = 0;  // shared memory that a block may have
};

struct Config {
  const char* kernel = "";  // the name of the function
  int architecture = 80;    // the folder that it is in
  int head_dim = 0;         // of a tile: the problem's, rounded up
  int tile_queries = 0, tile_keys = 0;
  int stages = 0;        // tiles of a kind that a block has in shared memory
  int warps = 0;         // of a block
  int blocks = 0;        // of a processor
  int shared_bytes = 0;  // of a block

  bool operator==(const Config&) const = default;
};

// "forward_kernel of sm80: head_dim 64, tiles of 128 queries and 64 keys, 3 stages, 4 warps, 2
// blocks on a processor, 42240 bytes of shared memory"
std::string to_string(const Config& config);

// The only place that decides. head_dim in [1, 256]; a device with at least 99 KiB for a block.
Config choose_config(const Problem& problem, const Device& device);

// head_dim rounded up to that of tiles, the same on all devices.
int tile_width(int head_dim);

// The fewest rows of a tile that a list for the pass is made of, on any device: workspaces have room
// for that many tiles.
int least_tile_rows(Pass pass, int head_dim);

// With SEQFUSE_LOG_KERNELS=1 in the environment: says on standard error what was chosen, once for
// each problem and config.
void log_choice(const Problem& problem, const Config& config, DType dtype);

}  // namespace seqfuse::ops::attention
