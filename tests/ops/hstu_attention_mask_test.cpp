// The implementations of HSTU attention's mask against its definition, for every small mask.
#include "ops/cpu/attention/hstu_attention_mask.h"

#include "ops/kernels/attention/hstu_attention.h"
#include "tests/ops/hstu_attention_dense.h"
#include "tests/ops/op_test.h"
#include "tests/oracles/small_hstu_masks.h"

namespace seqfuse::hstu_attention_mask_test {
namespace {

using oracle::describe;
using oracle::for_each_small_mask;
using oracle::HstuAttentionMask;

TEST(HstuAttentionMask, IntervalsAreTheDefinition) {
  int64_t cases = 0;
  for_each_small_mask([&](const HstuAttentionMask& definition) {
    const ops::HstuAttentionParams p{.mask = {.causal = definition.causal,
                                              .target_group_size = definition.group_size,
                                              .max_attn_len = definition.window,
                                              .min_full_attn_seq_len = definition.full_rows},
                                     .num_contexts = &definition.contexts,
                                     .num_targets = &definition.targets};
    const ops::cpu::SequenceMask mask(p, 0, definition.keys);
    for (int64_t i = 0; i < definition.keys; ++i) {
      for (int64_t j = 0; j < definition.keys; ++j) {
        ASSERT_EQ(mask.row(i).sees(static_cast<int>(j)), definition(i, j))
            << describe(definition) << " i=" << i << " j=" << j;
        ++cases;
      }
    }
  });
  EXPECT_GT(cases, 100'000);
}

TEST(HstuAttentionMask, DenseTensorsAreTheDefinition) {
  int64_t cases = 0;
  for_each_small_mask([&](const HstuAttentionMask& definition) {
    for (const int64_t queries : {definition.keys, definition.keys / 2}) {
      const at::Tensor mask = test::dense_mask(definition, queries, at::kCPU);
      ASSERT_EQ(mask.sizes(), at::IntArrayRef({queries, definition.keys}));
      const auto sees = mask.accessor<bool, 2>();
      const int64_t shift = definition.keys - queries;
      for (int64_t i = shift; i < definition.keys; ++i) {
        for (int64_t j = 0; j < definition.keys; ++j) {
          ASSERT_EQ(sees[i - shift][j], definition(i, j))
              << describe(definition) << " queries=" << queries << " i=" << i << " j=" << j;
          ++cases;
        }
      }
    }
  });
  EXPECT_GT(cases, 100'000);
}

}  // namespace
}  // namespace seqfuse::hstu_attention_mask_test
