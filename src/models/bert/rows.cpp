#include "models/bert/rows.h"

#include "ops/torch/attention/block_mask.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace seqfuse::models::bert {
namespace {

Rows make_rows(int64_t groups, int64_t length, bool sees_all, masks::Mask mask, at::Device device) {
  Rows rows{.groups = groups, .length = length, .sees_all = sees_all, .mask = std::move(mask)};
  rows.blocks = ops::build_block_mask(rows.mask, device);
  return rows;
}

}  // namespace

at::Tensor Rows::dense_mask(at::Device device) const {
  std::vector<uint8_t> values = mask.dense();
  return at::from_blob(values.data(), {mask.batch(), 1, length, length}, at::kByte)
      .to(at::kBool)
      .to(device);
}

Rows Rows::jagged(std::span<const int64_t> lengths, const SequenceMask& mask, at::Device device) {
  const bool equal = !lengths.empty() && lengths[0] > 0 &&
                     std::all_of(lengths.begin(), lengths.end(),
                                 [&](int64_t length) { return length == lengths[0]; });
  if (equal) {
    return make_rows(static_cast<int64_t>(lengths.size()), lengths[0], mask.sees_all(),
                     mask.of_length(lengths[0]), device);
  }
  masks::Mask packed = mask.packed(lengths);
  const int64_t total = packed.queries();
  return make_rows(1, total, false, std::move(packed), device);
}

Rows Rows::padded(std::span<const int64_t> lengths, int64_t length, const SequenceMask& mask,
                  at::Device device) {
  return make_rows(static_cast<int64_t>(lengths.size()), length, false,
                   mask.padded(lengths, length), device);
}

}  // namespace seqfuse::models::bert
