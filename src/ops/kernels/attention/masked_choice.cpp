#include "ops/kernels/attention/masked_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "base/error.h"
#include "ops/kernels/common/kernel_log.h"

namespace seqfuse::ops::attention {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// What a multiprocessor of an H200 does in a nanosecond, and what takes how long: a block, and a list
// of blocks, by measured times of sliding and Longformer masks; the others by its data sheet.
constexpr double kTensorFlops = 2300, kCacheBytes = 40;
constexpr double kBlockNs = 140, kListNs = 550, kBlockLatencyNs = 1200;
constexpr double kRowNs = 20, kKeyLatencyNs = 400;

const char* name_of(MaskedWay way) {
  return way == MaskedWay::blocks ? "blocks" : way == MaskedWay::rows ? "rows" : "library";
}

}  // namespace

MaskedEstimate estimate(const MaskedWork& w) {
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  const double copies = number(w.heads) * number(w.mask_batch == 1 ? w.batch : 1);
  const double visited = copies * number(w.visited), allowed = copies * number(w.allowed);
  const double rows = number(w.batch) * number(w.heads) * number(w.queries);
  const double lists = std::max(1.0, number(w.mask_batch) * number(w.query_blocks));
  const double dim = w.head_dim <= 32 ? 32 : w.head_dim <= 64 ? 64 : w.head_dim <= 96 ? 96 : 128;
  const double processors = w.processors;
  const double lists_of_heads = number(w.batch) * number(w.heads) * number(w.query_blocks);

  const double block = masks::kBlock * masks::kBlock * 4 * dim / kTensorFlops + kBlockNs;
  const double of_blocks = (visited * block + lists_of_heads * kListNs) / processors;
  const double longest_list = number(w.visited) / lists * kBlockLatencyNs;
  const double lanes = w.head_dim <= 64 ? 4 : 2;  // keys of a warp at a time
  const double of_rows =
      (allowed * 4 * number(w.head_dim) / kCacheBytes + rows * kRowNs) / processors;
  const double longest_row =
      number(w.allowed) / std::max(1.0, number(w.mask_batch * w.queries)) / lanes * kKeyLatencyNs;
  // The library does about what the blocks' kernel does, with longer tuned code, and skips the lists.
  const bool open = w.plain != masks::Plain::none && w.library_takes;
  return {.blocks = std::max(of_blocks, longest_list) * 1e-3,
          .rows = std::max(of_rows, longest_row) * 1e-3,
          .library = open ? std::max(of_blocks, longest_list) * 0.8e-3 : kNever};
}

MaskedWay choose_way(const MaskedWork& work) {
  const MaskedEstimate e = estimate(work);
  const char* const wanted = std::getenv("SEQFUSE_MASKED_ATTENTION");
  if (wanted != nullptr && *wanted != 0) {
    for (const MaskedWay way : {MaskedWay::blocks, MaskedWay::rows, MaskedWay::library}) {
      if (std::string_view(wanted) != name_of(way)) continue;
      return way == MaskedWay::library && e.library == kNever ? MaskedWay::blocks : way;
    }
    throw_error<UsageError>(
        "SEQFUSE_MASKED_ATTENTION is '{}'; expected blocks, rows or library, or nothing", wanted);
  }
  if (e.library <= std::min(e.blocks, e.rows)) return MaskedWay::library;
  return e.rows < e.blocks ? MaskedWay::rows : MaskedWay::blocks;
}

void log_way(const MaskedWork& work, DType dtype, MaskedWay way) {
  if (!logs_kernels()) return;
  const MaskedEstimate e = estimate(work);
  const int64_t in_blocks = work.visited * masks::kBlock * masks::kBlock;
  log_kernel(fmt::format(
      "masked_attention forward, {}, [{}, {}, {}, {}], {} keys, {} blocks visited, {:.1f} % of "
      "them allowed: {} (estimates in us: blocks {:.1f}, rows {:.1f}, library {:.1f})",
      seqfuse::name_of(dtype), work.batch, work.heads, work.queries, work.head_dim, work.keys,
      work.visited,
      100.0 * static_cast<double>(work.allowed) / std::max(1.0, static_cast<double>(in_blocks)),
      name_of(way), e.blocks, e.rows, e.library));
}

}  // namespace seqfuse::ops::attention
