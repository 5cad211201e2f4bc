#include "ops/kernels/gemm/gemm_silu_config.h"

#include <fmt/format.h>

#include <limits>
#include <stdexcept>

#include "ops/kernels/common/kernel_log.h"
#include "ops/kernels/gemm/gemm_silu_variant.h"

namespace seqfuse::ops::gemm {
namespace {

constexpr int kAllLater = std::numeric_limits<int>::max();

// Newest first. Code for 9.0a runs on 9.0 alone.
struct Family {
  int sm, last_sm;  // that it runs on
  const Variant& (*variant)();
};
constexpr Family kFamilies[] = {
#ifdef SEQFUSE_HAS_SM90_GEMM
    {90, 90, &gemm_silu_sm90},
#endif
    {80, kAllLater, &gemm_silu_sm80},
};

}  // namespace

std::string to_string(const Config& c) {
  return fmt::format(
      "{} of sm{}: tiles of {} x {}, {} of k at a time, {} stages, {} warps, {} block{} per SM, {} "
      "bytes of shared memory",
      c.kernel, c.architecture, c.tile_m, c.tile_n, c.tile_k, c.stages, c.warps, c.blocks,
      c.blocks == 1 ? "" : "s", c.shared_bytes);
}

const Variant& choose_variant(const Problem&, int sm) {
  for (const Family& family : kFamilies)
    if (family.sm <= sm && sm <= family.last_sm) return family.variant();
  throw std::runtime_error(
      fmt::format("matmul_silu: the GPU is SM {}.{}; expected SM 8.0 or later", sm / 10, sm % 10));
}

Config choose_config(const Problem& problem, int sm) {
  return choose_variant(problem, sm).config;
}

void log_choice(const Problem& problem, const Config& config, DType dtype) {
  if (!logs_kernels()) return;
  log_kernel(fmt::format("gemm_silu, {}, n {}, k {}: {}", name_of(dtype), problem.n, problem.k,
                         to_string(config)));
}

}  // namespace seqfuse::ops::gemm
