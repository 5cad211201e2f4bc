#include "ops/kernels/attention/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>

#include "ops/kernels/attention/variant.h"
#include "ops/kernels/common/kernel_log.h"

namespace seqfuse::ops::attention {
namespace {

// Kernels for an architecture also run on later ones. Newest first.
struct Architecture {
  int sm;
  std::span<const Variant> (*variants)(Pass, int head_dim);
};
constexpr Architecture kArchitectures[] = {{80, &sm80::variants}};

bool takes(const Variant& variant, const Problem& problem, const Device& device) {
  const bool aligned = variant.needs == Needs::nothing ||
                       (problem.aligned_inputs &&
                        (variant.needs == Needs::aligned_inputs || problem.aligned_outputs));
  return aligned && (variant.adds_bias || !problem.biased) &&
         variant.block_bytes <= device.block_bytes;
}

std::string_view name_of(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return "forward";
    case Pass::backward:
      return "backward";
    case Pass::backward_queries:
      return "backward of q";
    case Pass::bias_gradient:
      return "gradient of biases";
  }
  return "";
}

}  // namespace

std::string to_string(const Config& c) {
  const auto counted = [](int n, const char* what, const char* after) {
    return n == 0 ? "" : fmt::format("{} {}{}{}, ", n, what, n == 1 ? "" : "s", after);
  };
  return fmt::format(
      "{} of sm{}: head_dim {}, tiles of {} queries and {} keys, {}{} warps, {}{} bytes of shared "
      "memory",
      c.kernel, c.architecture, c.head_dim, c.tile_queries, c.tile_keys,
      counted(c.stages, "stage", ""), c.warps, counted(c.blocks, "block", " per SM"),
      c.shared_bytes);
}

int tile_width(int head_dim) {
  return head_dim <= 32 ? 32 : head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
}

const Variant& choose_variant(const Problem& problem, const Device& device) {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.sm > device.sm) continue;
    const auto variants = architecture.variants(problem.pass, tile_width(problem.head_dim));
    const auto variant =
        std::ranges::find_if(variants, [&](const Variant& v) { return takes(v, problem, device); });
    if (variant != variants.end()) return *variant;
  }
  throw std::runtime_error(fmt::format(
      "hstu_attention: the GPU is SM {}.{} with {} bytes of shared memory per block; expected SM "
      "8.0 or later and at least 99 KiB",
      device.sm / 10, device.sm % 10, device.block_bytes));
}

Config choose_config(const Problem& problem, const Device& device) {
  return choose_variant(problem, device).config;
}

int least_tile_rows(Pass pass, int head_dim) {
  int rows = 1 << 30;
  const bool of_keys = pass == Pass::backward || pass == Pass::bias_gradient;
  for (const Architecture& architecture : kArchitectures) {
    for (const Variant& variant : architecture.variants(pass, tile_width(head_dim)))
      rows = std::min(rows, of_keys ? variant.config.tile_keys : variant.config.tile_queries);
  }
  return rows;
}

void log_choice(const Problem& problem, const Config& config, DType dtype) {
  if (!logs_kernels()) return;
  log_kernel(fmt::format(
      "attention {}, {}, head_dim {}{}{}: {}", name_of(problem.pass), seqfuse::name_of(dtype),
      problem.head_dim, problem.biased ? ", biased" : "",
      problem.aligned_inputs && problem.aligned_outputs ? "" : ", unaligned", to_string(config)));
}

}  // namespace seqfuse::ops::attention
