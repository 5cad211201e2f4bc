#include "ops/torch/attention/block_mask.h"

#include <torch/library.h>
#include <torch/types.h>

#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "masks/block_mask.h"
#include "masks/user_masks.h"
#include "ops/kernels/mask/block_mask.h"
#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"

namespace seqfuse::ops {
namespace block_mask_op {
namespace {

constexpr const char* kOp = "block_mask";

std::span<const int64_t> integers(const Tensor& table) {
  return {table.const_data_ptr<int64_t>(), static_cast<size_t>(table.numel())};
}

// Masks by name, from a name's integers and the next tables. queries and keys of all are equal.
class RuleReader {
 public:
  RuleReader(at::TensorList tables, int64_t queries, int64_t keys)
      : tables_(tables), queries_(queries), keys_(keys) {}

  masks::Mask read(const std::string& kind, at::IntArrayRef n) {
    const auto check_count = [&](size_t expected) {
      TORCH_CHECK_VALUE(n.size() == expected, kOp, ": ", kind, " has ", n.size(),
                        " integers; expected ", expected);
    };
    if (kind == "window") {  // left, right, step; -1: no limit
      check_count(3);
      const auto side = [](int64_t value) { return value == -1 ? masks::kUnlimited : value; };
      return masks::dilated(queries_, keys_, side(n[0]), side(n[1]), n[2]);
    }
    if (kind == "global") {  // tokens
      check_count(1);
      return masks::global(queries_, keys_, n[0]);
    }
    if (kind == "random_blocks") {  // count, block, seed
      check_count(3);
      return masks::random_blocks(queries_, keys_, n[0], n[1], static_cast<uint64_t>(n[2]));
    }
    check_count(0);
    if (kind == "lengths") {  // of queries and of keys, [B] or [1] each
      const Tensor q = next(kind, at::kLong, 1), k = next(kind, at::kLong, 1);
      return masks::lengths(queries_, keys_, integers(q), integers(k));
    }
    if (kind == "documents") {  // lengths [B, documents]
      const Tensor table = next(kind, at::kLong, 2);
      std::vector<std::vector<int64_t>> lengths;
      for (int64_t b = 0; b < table.size(0); ++b) {
        const auto row = integers(table).subspan(b * table.size(1), table.size(1));
        lengths.emplace_back(row.begin(), row.end());
      }
      return masks::documents(queries_, keys_, lengths);
    }
    if (kind == "dense") {  // [B, queries, keys]
      const Tensor table = next(kind, at::kBool, 3);
      TORCH_CHECK_VALUE(table.size(1) == queries_ && table.size(2) == keys_, kOp, ": dense is ",
                        table.sizes(), "; expected [B, ", queries_, ", ", keys_, "]");
      const auto* elements = reinterpret_cast<const uint8_t*>(table.const_data_ptr<bool>());
      return masks::from_dense(table.size(0), queries_, keys_,
                               {elements, static_cast<size_t>(table.numel())});
    }
    if (kind == "csr") {  // offsets [B, queries + 1], columns
      const Tensor offsets = next(kind, at::kLong, 2), columns = next(kind, at::kLong, 1);
      return masks::from_csr(offsets.size(0), queries_, keys_, integers(offsets),
                             integers(columns));
    }
    if (kind == "intervals") {  // [B, queries, count, 2]
      const Tensor table = next(kind, at::kLong, 4);
      TORCH_CHECK_VALUE(table.size(1) == queries_ && table.size(3) == 2, kOp, ": intervals is ",
                        table.sizes(), "; expected [B, ", queries_, ", intervals, 2]");
      return masks::from_intervals(table.size(0), queries_, keys_, table.size(2), integers(table));
    }
    if (kind == "block_lists") {  // begins, columns, bitmaps, words [.., 64]
      const Tensor begin = next(kind, at::kLong, 1), columns = next(kind, at::kLong, 1),
                   bitmaps = next(kind, at::kLong, 1), words = next(kind, at::kLong, 2);
      const int64_t blocks = masks::count_of_blocks(queries_, 1);
      const int64_t batch = blocks == 0 ? 1 : (begin.size(0) - 1) / blocks;
      return masks::from_blocks(batch, queries_, keys_, integers(begin), integers(columns),
                                integers(bitmaps),
                                {reinterpret_cast<const uint64_t*>(words.const_data_ptr<int64_t>()),
                                 static_cast<size_t>(words.numel())});
    }
    TORCH_CHECK_VALUE(false, kOp, ": unknown kind ", kind);
  }

 private:
  Tensor next(const std::string& kind, at::ScalarType type, int64_t rank) {
    TORCH_CHECK_VALUE(used_ < tables_.size(), kOp, ": no table is left for ", kind);
    const Tensor table = tables_[used_++].cpu().contiguous();
    TORCH_CHECK_VALUE(table.scalar_type() == type && table.dim() == rank, kOp, ": a table of ",
                      kind, " is ", table.scalar_type(), " ", table.sizes(), "; expected ", type,
                      " of ", rank, " dimensions");
    return table;
  }

  at::TensorList tables_;
  size_t used_ = 0;
  int64_t queries_, keys_;
};

#ifdef SEQFUSE_HAS_CUDA

// The lists by their lengths, longest first; those of equal length in order.
Tensor longest_first(const Tensor& lengths) {
  return lengths.argsort(/*stable=*/true, /*dim=*/0, /*descending=*/true).to(at::kInt);
}

// Waits for the GPU once, for the sizes of the lists.
BlockMaskTensors build_on_gpu(const masks::Mask& mask, at::Device device) {
  const c10::cuda::CUDAGuard guard(device);
  const auto stream = c10::cuda::getCurrentCUDAStream();
  const auto ints = [&](int64_t n) { return at::empty({n}, at::device(device).dtype(at::kInt)); };
  std::vector<Tensor> tables;
  BlockMaskBuild build;
  build.rule = mask.with_tables([&](const void* data, size_t bytes) -> const void* {
    const auto size = static_cast<int64_t>(bytes);
    tables.push_back(at::from_blob(const_cast<void*>(data), {size}, at::kByte).to(device));
    return tables.back().const_data_ptr();
  });
  build.batch = mask.batch();
  build.step = masks::block_step(mask.rule());
  const int64_t rows = build.batch * build.query_blocks();
  const int64_t columns = build.batch * build.key_blocks();
  TORCH_CHECK_VALUE(rows * build.key_blocks() <= masks::kUnlimited,
                    "build_block_mask: ", mask.batch(), " sequences of ", mask.queries(),
                    " queries and ", mask.keys(), " keys have ", rows * build.key_blocks(),
                    " blocks; expected at most ", masks::kUnlimited,
                    " on a GPU: make the mask on the CPU");
  const Tensor blocks = ints(rows * build.key_blocks()), row_bitmaps = ints(rows + 1),
               row_begin = ints(rows + 1), column_begin = ints(columns + 1);
  const Tensor allowed = at::zeros({1}, at::device(device).dtype(at::kLong));
  build.allowed = reinterpret_cast<unsigned long long*>(allowed.mutable_data_ptr<int64_t>());
  const auto data = [](const Tensor& t) { return t.mutable_data_ptr<int32_t>(); };
  build.blocks = data(blocks);
  build.row_bitmaps = data(row_bitmaps);
  build.row_begin = data(row_begin);
  build.column_begin = data(column_begin);
  C10_CUDA_CHECK(block_mask_count_cuda(build, stream));

  const Tensor sizes =
      at::stack({row_begin[rows].to(at::kLong), row_bitmaps[rows].to(at::kLong), allowed[0]}).cpu();
  const int64_t entries = sizes[0].item<int64_t>(), bitmaps = sizes[1].item<int64_t>();
  const Tensor column = ints(entries), bitmap = ints(entries), row = ints(entries),
               column_bitmap = ints(entries);
  const auto words = at::device(device).dtype(at::kLong);
  const Tensor bits = at::empty({bitmaps, masks::kBlock}, words),
               seen = at::empty({bitmaps, 2}, words);
  build.column = data(column);
  build.bitmap = data(bitmap);
  build.row = data(row);
  build.column_bitmap = data(column_bitmap);
  build.bits = reinterpret_cast<uint64_t*>(bits.mutable_data_ptr<int64_t>());
  build.seen = reinterpret_cast<uint64_t*>(seen.mutable_data_ptr<int64_t>());
  C10_CUDA_CHECK(block_mask_fill_cuda(build, stream));
  return {.lists = {row_begin, column, bitmap, longest_first(row_begin.diff()), column_begin, row,
                    column_bitmap, longest_first(column_begin.diff()), bits, seen},
          .batch = mask.batch(),
          .queries = mask.queries(),
          .keys = mask.keys(),
          .step = build.step,
          .plain = masks::plain_kind(mask.rule()),
          .allowed = sizes[2].item<int64_t>()};
}

#endif

// kinds: a rule in postfix order, "and" and "or" combining the two before; integers: those of all
// kinds one after the other, counts[i] of kinds[i]. tables may be on any device. Returns the lists of
// BlockMaskTensors on `device`, and then its sizes, on the CPU.
std::vector<Tensor> build_by_kinds(const std::vector<std::string>& kinds, at::IntArrayRef counts,
                                   at::IntArrayRef values, at::TensorList tables, int64_t queries,
                                   int64_t keys, at::Device device) {
  TORCH_CHECK_VALUE(kinds.size() == counts.size(), kOp, ": ", kinds.size(), " kinds and ",
                    counts.size(), " counts; expected as many");
  try {
    RuleReader reader(tables, queries, keys);
    std::vector<masks::Mask> results;
    for (size_t i = 0; i < kinds.size(); ++i) {
      if (kinds[i] == "and" || kinds[i] == "or") {
        TORCH_CHECK_VALUE(results.size() >= 2, kOp, ": ", kinds[i], " has ", results.size(),
                          " masks before it; expected two");
        const masks::Mask right = results.back();
        results.pop_back();
        results.back() = kinds[i] == "and" ? results.back() & right : results.back() | right;
        continue;
      }
      TORCH_CHECK_VALUE(counts[i] >= 0 && counts[i] <= static_cast<int64_t>(values.size()), kOp,
                        ": ", kinds[i], " has ", counts[i], " integers of ", values.size());
      results.push_back(reader.read(kinds[i], values.slice(0, counts[i])));
      values = values.slice(counts[i]);
    }
    TORCH_CHECK_VALUE(results.size() == 1, kOp, ": the rule leaves ", results.size(),
                      " masks; expected one");
    BlockMaskTensors made = build_block_mask(results[0], device);
    made.lists.push_back(at::tensor(made.sizes(), at::kLong));
    return made.lists;
  } catch (const Error& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

}  // namespace
}  // namespace block_mask_op

BlockMaskTensors build_block_mask(const masks::Mask& mask, at::Device device) {
  if (device.is_cpu()) return block_mask_tensors(masks::BlockMask(mask));
#ifdef SEQFUSE_HAS_CUDA
  if (device.is_cuda()) return block_mask_op::build_on_gpu(mask, device);
#endif
  TORCH_CHECK_VALUE(false, block_mask_op::kOp, ": the device is ", device,
                    "; expected cpu, or cuda in a build with CUDA kernels");
}

// Not an operator to trace: the sizes of its results depend on values.
TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  using namespace block_mask_op;
  library.def(
      "build_block_mask(str[] kinds, int[] counts, int[] integers, Tensor[] tables, int queries, "
      "int keys, Device device) -> Tensor[]");
  library.impl("build_block_mask",
               torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, &build_by_kinds));
}

}  // namespace seqfuse::ops
