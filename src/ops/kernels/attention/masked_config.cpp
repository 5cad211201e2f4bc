#include "ops/kernels/attention/masked_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "ops/kernels/attention/masked_variant.h"
#include "ops/kernels/common/kernel_log.h"

namespace seqfuse::ops::attention {
namespace {

constexpr int kAllLater = std::numeric_limits<int>::max();

// Newest first. Code for 9.0a runs on 9.0 alone.
struct Family {
  int sm, last_sm;  // that it runs on
  std::span<const MaskedVariant> (*variants)(MaskedPass);
};
constexpr Family kFamilies[] = {
#ifdef SEQFUSE_HAS_SM90_ATTENTION
    {90, 90, &sm90::masked_variants},
#endif
    {80, kAllLater, &sm80::masked_variants},
};

bool takes(const MaskedVariant& variant, const MaskedProblem& problem, const Device& device) {
  return variant.least_head_dim <= problem.head_dim &&
         problem.head_dim <= variant.config.head_dim &&
         (problem.copied_tiles || !variant.copies_tiles) &&
         variant.config.shared_bytes <= device.block_bytes;
}

bool size_fits(int64_t size) {
  return size > 0 && size < int64_t{1} << 31;
}

// Of a dimension of one element, a stride is never used. In 16-bit elements.
bool stride_fits(int64_t stride, int64_t size) {
  return size == 1 || (stride > 0 && stride % 8 == 0 && stride < int64_t{1} << 39);
}

bool tiles_fit(const BatchedHeads& tensor, int64_t batch, int64_t heads, int64_t rows, int step) {
  return size_fits(batch) && size_fits(heads) && size_fits(rows) && rows % step == 0 &&
         stride_fits(tensor.row_stride * step, 2) && stride_fits(tensor.head_stride, heads) &&
         stride_fits(tensor.batch_stride, batch);
}

const char* name_of(MaskedPass pass) {
  switch (pass) {
    case MaskedPass::forward:
      return "forward";
    case MaskedPass::forward_rows:
      return "forward by rows";
    case MaskedPass::backward_queries:
      return "backward of q";
    case MaskedPass::backward_keys:
      return "backward of k and v";
  }
  return "";
}

}  // namespace

MaskedProblem problem_of(MaskedPass pass, const MaskedAttentionParams& p) {
  const bool backward = pass == MaskedPass::backward_queries || pass == MaskedPass::backward_keys;
  const auto queries_fit = [&](const BatchedHeads& tensor) {
    return tiles_fit(tensor, p.batch, p.heads, p.mask.queries, p.mask.step);
  };
  const auto keys_fit = [&](const BatchedHeads& tensor) {
    return tiles_fit(tensor, p.batch, p.key_heads, p.mask.keys, p.mask.step);
  };
  return {.pass = pass,
          .head_dim = static_cast<int>(p.head_dim),
          .copied_tiles = queries_fit(p.q) && keys_fit(p.k) && keys_fit(p.v) &&
                          (!backward || queries_fit(p.dout))};
}

const MaskedVariant& choose_variant(const MaskedProblem& problem, const Device& device) {
  for (const Family& family : kFamilies) {
    if (device.sm < family.sm || device.sm > family.last_sm) continue;
    const auto variants = family.variants(problem.pass);
    const auto variant = std::ranges::find_if(
        variants, [&](const MaskedVariant& v) { return takes(v, problem, device); });
    if (variant != variants.end()) return *variant;
  }
  throw std::runtime_error(
      fmt::format("masked_attention: head_dim {} on SM {}.{} with {} bytes of shared memory per "
                  "block; expected "
                  "8 to 128, SM 8.0 or later and at least 99 KiB",
                  problem.head_dim, device.sm / 10, device.sm % 10, device.block_bytes));
}

Config choose_config(const MaskedProblem& problem, const Device& device) {
  return choose_variant(problem, device).config;
}

void log_choice(const MaskedProblem& problem, const Config& config, DType dtype) {
  if (!logs_kernels()) return;
  log_kernel(fmt::format("masked_attention {}, {}, head_dim {}{}: {}", name_of(problem.pass),
                         seqfuse::name_of(dtype), problem.head_dim,
                         problem.copied_tiles ? "" : ", tiles that cannot be copied",
                         to_string(config)));
}

}  // namespace seqfuse::ops::attention
