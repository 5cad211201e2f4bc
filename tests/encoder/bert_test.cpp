#include "models/bert/model.h"

#include <gtest/gtest.h>

#include "tests/encoder/tiny_bert.h"

namespace seqfuse::bert_test {
namespace {

using at::Tensor;
using models::bert::fused;
using models::bert::Model;
using models::bert::Op;
using models::bert::Program;
using models::bert::Rows;
using models::bert::SequenceMask;
using models::bert::unfused;
using test::largest_difference;
using test::TinyBatch;
using test::TinyBert;

SequenceMask mask_of(const std::vector<std::string>& rules) {
  return SequenceMask::parse(rules);
}

const std::vector<std::string> kMasks{"none",        "causal",       "sliding:5",
                                      "window:70,3", "dilated:40,4", "longformer:6,3",
                                      "global:2",    "random:1,5",   "bigbird:9,4,1,3"};

class BertMasks : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kinds, BertMasks, testing::ValuesIn(kMasks), [](const auto& rule) {
  return rule.param.substr(0, rule.param.find(':'));
});

// Programs, layouts and dtypes against the oracle; float32 by the rule that a fused program's error is
// at most twice that of plain ATen.
TEST_P(BertMasks, AreTheFormula) {
  const TinyBert tiny;
  const SequenceMask mask = mask_of({GetParam()});
  for (const auto& lengths : {std::vector<int64_t>{70, 1, 33, 0, 130}, {65, 65}}) {
    const TinyBatch batch(lengths, tiny.vocab_size);
    const Tensor expected = batch.expected(tiny.oracle(), mask);
    const Rows rows = Rows::jagged(lengths, mask, at::kCPU);
    const auto error = [&](const Model& model, const Program& program) {
      return largest_difference(model.states(batch.jagged(), rows, program), expected);
    };
    const Model wide = tiny.model(at::kDouble), narrow = tiny.model(at::kFloat);
    EXPECT_LT(error(wide, unfused()), 1e-12);
    EXPECT_LT(error(wide, fused()), 1e-12);
    EXPECT_LE(error(narrow, fused()), 2 * error(narrow, unfused()) + 1e-6);
  }
}

TEST_P(BertMasks, PaddingChangesNothing) {
  const TinyBert tiny;
  const SequenceMask mask = mask_of({GetParam()});
  const std::vector<int64_t> lengths{70, 1, 0, 33, 130};
  const TinyBatch batch(lengths, tiny.vocab_size);
  const Model model = tiny.model(at::kDouble);
  const Tensor jagged =
      model.states(batch.jagged(), Rows::jagged(lengths, mask, at::kCPU), fused());
  const Rows rows = Rows::padded(lengths, 150, mask, at::kCPU);
  for (const Program* program : {&unfused(), &fused()}) {
    const Tensor padded = model.states(batch.padded(150), rows, *program);
    std::vector<Tensor> kept;
    for (size_t b = 0; b < lengths.size(); ++b) {
      kept.push_back(padded.narrow(0, static_cast<int64_t>(b) * 150, lengths[b]));
    }
    EXPECT_LT(largest_difference(at::cat(kept), jagged), 1e-12);
  }
}

class BertActivations : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Names, BertActivations, testing::Values("gelu", "gelu_new", "relu"));

TEST_P(BertActivations, AreTheFormula) {
  TinyBert tiny;
  tiny.hidden_act = GetParam();
  const TinyBatch batch({17, 4}, tiny.vocab_size);
  const Tensor expected = batch.expected(tiny.oracle(), {});
  const Rows rows = Rows::jagged(batch.lengths, {}, at::kCPU);
  const Model narrow = tiny.model(at::kFloat);
  EXPECT_LT(largest_difference(tiny.model(at::kDouble).states(batch.jagged(), rows), expected),
            1e-12);
  EXPECT_LE(
      largest_difference(narrow.states(batch.jagged(), rows), expected),
      2 * largest_difference(narrow.states(batch.jagged(), rows, unfused()), expected) + 1e-6);
}

// Whatever its neighbours hold, even where they are far larger.
TEST(Bert, ARowHasTheSameBitsBesideOtherRows) {
  const TinyBert tiny;
  const Model model = tiny.model(at::kFloat);
  const std::vector<int64_t> lengths{70, 33, 5};
  for (const char* rule : {"none", "bigbird:9,4,1,3"}) {
    const Rows rows = Rows::jagged(lengths, mask_of({rule}), at::kCPU);
    TinyBatch batch(lengths, tiny.vocab_size);
    const Tensor first = model.states(batch.jagged(), rows);
    for (const size_t other : {0, 2}) {
      for (int64_t& id : batch.ids[other]) id = (id + 7) % tiny.vocab_size;
    }
    const Tensor second = model.states(batch.jagged(), rows);
    EXPECT_TRUE(at::equal(first.narrow(0, 70, 33), second.narrow(0, 70, 33))) << rule;
    EXPECT_FALSE(at::equal(first.narrow(0, 0, 70), second.narrow(0, 0, 70))) << rule;
  }
}

TEST(Bert, ScratchThatHoldsNaNChangesNothing) {
  const TinyBert tiny;
  const Model model = tiny.model(at::kFloat);
  const std::vector<int64_t> lengths{70, 0, 33};
  const TinyBatch batch(lengths, tiny.vocab_size);
  const Rows jagged = Rows::jagged(lengths, mask_of({"sliding:3"}), at::kCPU);
  const Rows padded = Rows::padded(lengths, 80, mask_of({"sliding:3"}), at::kCPU);
  const Tensor of_jagged = model.states(batch.jagged(), jagged);
  const Tensor of_padded = model.states(batch.padded(80), padded);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(true);
  EXPECT_TRUE(at::equal(model.states(batch.jagged(), jagged), of_jagged));
  EXPECT_TRUE(at::equal(model.states(batch.padded(80), padded), of_padded));
  EXPECT_TRUE(of_padded.isfinite().all().item<bool>());
}

TEST(Bert, NoTokensHaveNoStates) {
  const TinyBert tiny;
  const std::vector<int64_t> lengths{0, 0};
  const TinyBatch batch(lengths, tiny.vocab_size);
  const Tensor states =
      tiny.model(at::kFloat).states(batch.jagged(), Rows::jagged(lengths, {}, at::kCPU));
  EXPECT_EQ(states.size(0), 0);
  EXPECT_EQ(states.size(1), tiny.hidden());
}

TEST(Bert, DevicesAndDtypesThatDoNotFitAreRefused) {
  try {
    TinyBert().model(at::kHalf);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "a BERT of Half on cpu; expected float32 or float64 on a CPU, float16 or bfloat16 "
                 "on a GPU");
  }
}

// Any cut is a program if no later segment reads what is inside another one.
TEST(BertProgram, SegmentsOfOneProgramMayRunInAnother) {
  std::vector<models::bert::Segment> mixed;
  for (const auto& segment : fused().segments()) {
    if (segment.first == Op::qk) {
      for (const auto& single : unfused().segments()) {
        if (single.first >= Op::qk && single.first <= Op::transpose) mixed.push_back(single);
      }
    } else {
      mixed.push_back(segment);
    }
  }
  const TinyBert tiny;
  const TinyBatch batch({9, 3}, tiny.vocab_size);
  const Rows rows = Rows::jagged(batch.lengths, {}, at::kCPU);
  const Model model = tiny.model(at::kDouble);
  EXPECT_LT(largest_difference(model.states(batch.jagged(), rows, Program(mixed)),
                               model.states(batch.jagged(), rows, fused())),
            1e-12);
}

TEST(BertProgram, OthersAreRefused) {
  const auto run = [](const models::bert::LayerRun& layer) { return layer.input; };
  EXPECT_THROW(Program({{Op::gemm0, Op::gemm3, run}}), Error);
  EXPECT_THROW(Program({{Op::bias0_split, Op::layer_norm2, run}}), Error);
  // bias3_residual reads layer_norm1, which is inside the first segment.
  EXPECT_THROW(Program({{Op::gemm0, Op::gemm2, run}, {Op::bias2_gelu, Op::layer_norm2, run}}),
               Error);
  EXPECT_NO_THROW(Program({{Op::gemm0, Op::layer_norm2, run}}));
}

}  // namespace
}  // namespace seqfuse::bert_test
