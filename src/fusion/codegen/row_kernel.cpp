#include "fusion/codegen/row_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"

namespace seqfuse::fusion {
namespace {

constexpr int kWarp = 32, kMostThreads = 1024;
constexpr int64_t kMostItems = 64;  // elements of a row that a thread keeps in registers

const Node& node_at(int op) {
  return kGraph[static_cast<size_t>(op)];
}

int64_t pieces_of_row(const RowKernel& kernel, int width) {
  return (kernel.columns + width - 1) / width;
}

int64_t items_of_thread(const RowKernel& kernel, const Tile& tile) {
  const int64_t threads = tile.row_threads();
  return (pieces_of_row(kernel, tile.width) + threads - 1) / threads * tile.width;
}

int64_t widest(const RowKernel& kernel) {
  int width = 16 / static_cast<int>(size_of(kernel.dtype));
  const int64_t unit =
      kernel.run.first == index_of(Op::transpose) ? kernel.head_dim : kernel.columns;
  while (unit % width != 0) width /= 2;
  return width;
}

// "threads=" and a number; moves text behind both.
int read_part(std::string_view& text, std::string_view whole, std::string_view name) {
  int value = 0;
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  bool good = text.starts_with(name);
  if (good) {
    text.remove_prefix(name.size());
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    good = error == std::errc();
    text.remove_prefix(static_cast<size_t>(end - text.data()));
  }
  SEQFUSE_CHECK_AS(UsageError, good, "the tile '{}': expected such as 'threads=128 rows=4 width=8'",
                   whole);
  return value;
}

}  // namespace

std::string text_of(const Tile& tile) {
  return fmt::format("threads={} rows={} width={}", tile.threads, tile.rows, tile.width);
}

Tile read_tile(std::string_view text) {
  std::string_view rest = text;
  Tile tile;
  tile.threads = read_part(rest, text, "threads=");
  tile.rows = read_part(rest, text, "rows=");
  tile.width = read_part(rest, text, "width=");
  SEQFUSE_CHECK_AS(UsageError, rest.empty(), "the tile '{}': there is more behind the width", text);
  return tile;
}

bool can_generate(Segment run) {
  int reductions = 0;
  for (int op = run.first; op <= run.last; ++op) {
    const OpKind kind = node_at(op).kind;
    if (kind == OpKind::gemm || kind == OpKind::batched_gemm) return false;
    if (kind == OpKind::layout && op != run.first) return false;
    reductions += kind == OpKind::reduction ? 1 : 0;
  }
  return reductions <= 1;
}

std::vector<Operand> operands_of(Segment run) {
  std::vector<Operand> operands{Operand::input};
  for (int op = run.first; op <= run.last; ++op) {
    switch (static_cast<Op>(op)) {
      case Op::bias0_split:
      case Op::bias2_gelu:
        operands.push_back(Operand::bias);
        break;
      case Op::bias1_residual:
      case Op::bias3_residual:
        operands.insert(operands.end(), {Operand::bias, Operand::residual});
        break;
      case Op::mask:
        operands.push_back(Operand::mask);
        break;
      case Op::layer_norm1:
      case Op::layer_norm2:
        operands.insert(operands.end(), {Operand::norm_weight, Operand::norm_bias});
        break;
      default:
        break;
    }
  }
  operands.push_back(Operand::output);
  return operands;
}

Extra extra_of(Segment run) {
  if (run.first == index_of(Op::transpose)) return Extra::length;
  return run.first == index_of(Op::mask) ? Extra::mask_rows : Extra::none;
}

const char* name_of(Operand operand) {
  static constexpr std::array<const char*, 7> kNames{
      "input", "mask", "bias", "residual", "norm_weight", "norm_bias", "output"};
  return kNames[static_cast<size_t>(operand)];
}

std::string name_of(Segment run) {
  static constexpr std::array<const char*, kOps> kNames{
      "gemm0", "bias0_split",      "qk",    "mask",           "softmax",
      "pv",    "transpose",        "gemm1", "bias1_residual", "norm1",
      "gemm2", "bias2_activation", "gemm3", "bias3_residual", "norm2"};
  std::string name;
  for (int op = run.first; op <= run.last; ++op) {
    if (!name.empty()) name += '_';
    name += kNames[static_cast<size_t>(op)];
  }
  return name;
}

std::string why_unfit(const RowKernel& kernel, const Tile& tile) {
  const auto [threads, rows, width] = tile;
  if (width < 1 || widest(kernel) % width != 0)
    return fmt::format("width {} for rows of {}; expected a divisor of {}", width, kernel.columns,
                       widest(kernel));
  if (rows < 1 || threads < kWarp || threads > kMostThreads || threads % (rows * kWarp) != 0)
    return fmt::format("{} threads for {} rows; expected whole warps for each, and at most {}",
                       threads, rows, kMostThreads);
  if (items_of_thread(kernel, tile) > kMostItems)
    return fmt::format("a thread would keep {} elements; expected at most {}",
                       items_of_thread(kernel, tile), kMostItems);
  if (tile.row_threads() - kWarp >= pieces_of_row(kernel, width))
    return fmt::format("{} threads for a row of {} pieces: a warp would have none",
                       tile.row_threads(), pieces_of_row(kernel, width));
  return "";
}

Tile default_tile(const RowKernel& kernel) {
  const int width = static_cast<int>(widest(kernel));
  // Up to four pieces for each thread, so that all loads are in flight together.
  const int64_t warps = std::clamp<int64_t>(
      (pieces_of_row(kernel, width) + 4 * kWarp - 1) / (4 * kWarp), 1, kMostThreads / kWarp);
  const int row_threads = static_cast<int>(warps) * kWarp;
  const int rows = std::max(1, 128 / row_threads);
  const Tile tile{rows * row_threads, rows, width};
  if (const std::string why = why_unfit(kernel, tile); !why.empty())
    throw_error("no kernel for {} with rows of {} elements: {}", name_of(kernel.run),
                kernel.columns, why);
  return tile;
}

std::vector<Tile> tiles_of(const RowKernel& kernel) {
  std::vector<Tile> tiles{default_tile(kernel)};
  const auto widest_piece = static_cast<int>(widest(kernel));
  for (const int width : {widest_piece, std::max(1, widest_piece / 2)}) {
    for (const int row_threads : {32, 64, 96, 128, 256, 512}) {
      for (const int rows : {1, 2, 4, 8}) {
        const Tile tile{row_threads * rows, rows, width};
        if (tile.threads < 64 || tile.threads > 512 || !why_unfit(kernel, tile).empty()) continue;
        if (std::find(tiles.begin(), tiles.end(), tile) == tiles.end()) tiles.push_back(tile);
      }
    }
  }
  return tiles;
}

}  // namespace seqfuse::fusion
