// The encoder on a GPU in 16 bits, against float64.
#include <gtest/gtest.h>

#include "tests/encoder/tiny_bert.h"
#include "tests/missing_gpu.h"

namespace seqfuse::bert_cuda_test {
namespace {

using at::Tensor;
using models::bert::fused;
using models::bert::Model;
using models::bert::Rows;
using models::bert::SequenceMask;
using models::bert::unfused;
using test::largest_difference;
using test::TinyBatch;
using test::TinyBert;

class BertCuda : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const char* why = test::missing_gpu()) GTEST_SKIP() << why;
  }
};
INSTANTIATE_TEST_SUITE_P(Masks, BertCuda,
                         testing::Values("none", "causal", "sliding:5", "dilated:40,4",
                                         "longformer:6,3", "bigbird:9,4,1,3"),
                         [](const auto& rule) {
                           return rule.param.substr(0, rule.param.find(':'));
                         });

TEST_P(BertCuda, IsAsExactAsPlainPyTorch) {
  TinyBert tiny;
  tiny.heads = 3;
  tiny.head_dim = 64;
  tiny.inner = 384;
  const SequenceMask mask = SequenceMask::parse(std::vector<std::string>{GetParam()});
  for (const auto& lengths : {std::vector<int64_t>{70, 1, 33, 0, 130}, {65, 65}}) {
    const TinyBatch batch(lengths, tiny.vocab_size);
    const Tensor expected =
        tiny.model(at::kDouble)
            .states(batch.jagged(), Rows::jagged(lengths, mask, at::kCPU), unfused());
    const Rows rows = Rows::jagged(lengths, mask, at::kCUDA);
    for (const auto type : {at::kHalf, at::kBFloat16}) {
      const Model model = tiny.model(type, at::kCUDA);
      const auto error = [&](const models::bert::Program& program) {
        return largest_difference(model.states(batch.jagged(at::kCUDA), rows, program).cpu(),
                                  expected);
      };
      EXPECT_LE(error(fused()), 2 * error(unfused()) + 1e-4) << type;
    }
  }
}

TEST_P(BertCuda, ARowHasTheSameBitsBesideOtherRows) {
  TinyBert tiny;
  tiny.head_dim = 32;
  const std::vector<int64_t> lengths{70, 33, 5};
  const SequenceMask mask = SequenceMask::parse(std::vector<std::string>{GetParam()});
  const Rows rows = Rows::jagged(lengths, mask, at::kCUDA);
  const Model model = tiny.model(at::kHalf, at::kCUDA);
  TinyBatch batch(lengths, tiny.vocab_size);
  const Tensor first = model.states(batch.jagged(at::kCUDA), rows);
  for (const size_t other : {0, 2}) {
    for (int64_t& id : batch.ids[other]) id = (id + 7) % tiny.vocab_size;
  }
  const Tensor second = model.states(batch.jagged(at::kCUDA), rows);
  EXPECT_TRUE(at::equal(first.narrow(0, 70, 33), second.narrow(0, 70, 33)));
  EXPECT_FALSE(at::equal(first.narrow(0, 0, 70), second.narrow(0, 0, 70)));
}

TEST(BertOnCuda, RefusesTypesAndShapesWithoutKernels) {
  if (const char* why = test::missing_gpu()) GTEST_SKIP() << why;
  TinyBert tiny;
  EXPECT_THROW(tiny.model(at::kFloat, at::kCUDA), UsageError);
  tiny.head_dim = 12;
  EXPECT_THROW(tiny.model(at::kHalf, at::kCUDA), UsageError);
}

}  // namespace
}  // namespace seqfuse::bert_cuda_test
