#include "ops/kernels/attention/sm90/masked_tiles.cuh"

#include "ops/kernels/common/sm90/tensor_map.h"

namespace seqfuse::ops::attention::sm90 {
namespace {

RowsOfHeads rows_of(const BatchView& view, const MaskedArguments& args, int heads, int64_t rows) {
  return {.data = view.data,
          .batch = args.batch,
          .heads = heads,
          .rows = rows,
          .columns = args.head_dim,
          .batch_bytes = view.batch_bytes,
          .head_bytes = view.head_bytes,
          .row_bytes = view.row_bytes,
          .step = args.mask.step};
}
RowsOfHeads queries_of(const BatchView& view, const MaskedArguments& args) {
  return rows_of(view, args, args.heads, args.mask.queries);
}
RowsOfHeads keys_of(const BatchView& view, const MaskedArguments& args) {
  return rows_of(view, args, args.key_heads, args.mask.keys);
}

}  // namespace

cudaError_t make_masked_tiles(MaskedTiles& tiles, const MaskedArguments& args, bool backward) {
  const masks::BlockMaskView& mask = args.mask;
  tiles.group = args.heads / args.key_heads;
  tiles.query_blocks = static_cast<int>(mask.query_blocks / mask.step);
  tiles.key_blocks = static_cast<int>(mask.key_blocks / mask.step);
  cudaError_t error = make_tensor_map(tiles.q, queries_of(args.q, args));
  if (error == cudaSuccess) error = make_tensor_map(tiles.k, keys_of(args.k, args));
  if (error == cudaSuccess) error = make_tensor_map(tiles.v, keys_of(args.v, args));
  if (error == cudaSuccess && backward)
    error = make_tensor_map(tiles.dout, queries_of(args.dout, args));
  return error;
}

}  // namespace seqfuse::ops::attention::sm90
