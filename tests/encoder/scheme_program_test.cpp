// Any legal scheme as a program.
#include "models/bert/scheme_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "fusion/codegen/row_kernel.h"
#include "fusion/legality.h"
#include "serving/tuning/scheme_search.h"
#include "tests/encoder/tiny_bert.h"
#include "tests/missing_gpu.h"

namespace seqfuse::scheme_program_test {
namespace {

using at::Tensor;
using models::bert::Choices;
using models::bert::Model;
using models::bert::Op;
using models::bert::Rows;
using models::bert::SchemeProgram;
using models::bert::SequenceMask;
using models::bert::Target;
using models::bert::unfused;
using test::largest_difference;
using test::TinyBatch;
using test::TinyBert;
using testing::HasSubstr;

fusion::Segment between(Op first, Op last) {
  return {fusion::index_of(first), fusion::index_of(last)};
}

Target target_of(const Model& model) {
  return {.config = model.config(), .device = model.device(), .cache = {}};
}

class SchemesOnCpu : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Activations, SchemesOnCpu, testing::Values("gelu", "gelu_new", "relu"));

// The published formula, in each of the 720 ways that are legal.
TEST_P(SchemesOnCpu, AllLegalProgramsAgree) {
  TinyBert tiny;
  tiny.layers = 1;
  tiny.hidden_act = GetParam();
  const SequenceMask mask = SequenceMask::parse(std::vector<std::string>{"sliding:2"});
  const TinyBatch batch({9, 9}, tiny.vocab_size);
  const Model model = tiny.model(at::kDouble);
  const Rows rows = Rows::jagged(batch.lengths, mask, at::kCPU);
  const Tensor expected = batch.expected(tiny.oracle(), mask);
  ASSERT_EQ(serving::legal_programs().size(), 720U);
  for (const int64_t number : serving::legal_programs()) {
    const SchemeProgram program(fusion::Scheme::from_number(number), target_of(model));
    ASSERT_LT(largest_difference(model.states(batch.jagged(), rows, program.program()), expected),
              1e-12)
        << number;
  }
}

TEST(SchemeProgram, FloatIsAsExactAsPlainPyTorch) {
  const TinyBert tiny;
  for (const auto& lengths : {std::vector<int64_t>{70, 1, 33}, {65, 65}}) {
    const SequenceMask mask = SequenceMask::parse(std::vector<std::string>{"bigbird:9,4,1,3"});
    const TinyBatch batch(lengths, tiny.vocab_size);
    const Tensor expected = batch.expected(tiny.oracle(), mask);
    const Model model = tiny.model(at::kFloat);
    const Rows rows = Rows::jagged(lengths, mask, at::kCPU);
    const auto error = [&](const models::bert::Program& program) {
      return largest_difference(model.states(batch.jagged(), rows, program), expected);
    };
    const double most = 2 * error(unfused()) + 1e-6;
    for (size_t i = 0; i < serving::legal_programs().size(); i += 97) {
      const int64_t number = serving::legal_programs()[i];
      const SchemeProgram program(fusion::Scheme::from_number(number), target_of(model));
      EXPECT_LE(error(program.program()), most) << number;
    }
  }
}

// Rows that see nothing are zeros in attention, whatever the segments.
TEST(SchemeProgram, TokensThatSeeNothing) {
  const TinyBert tiny;
  const TinyBatch batch({7, 3}, tiny.vocab_size);
  const Model model = tiny.model(at::kDouble);
  const Rows rows = Rows::padded(batch.lengths, 8, SequenceMask(), at::kCPU);
  const Tensor expected = model.states(batch.padded(8), rows, unfused());
  for (size_t i = 0; i < serving::legal_programs().size(); i += 53) {
    const SchemeProgram program(fusion::Scheme::from_number(serving::legal_programs()[i]),
                                target_of(model));
    EXPECT_LT(largest_difference(model.states(batch.padded(8), rows, program.program()), expected),
              1e-12);
  }
}

TEST(SchemeProgram, SaysWhatRunsInPieces) {
  const Model model = TinyBert().model(at::kFloat);
  const auto shortfall = [&](fusion::Segment segment) {
    return models::bert::way_of(segment, target_of(model)).shortfall();
  };
  EXPECT_EQ(shortfall(between(Op::qk, Op::transpose)), "");
  EXPECT_EQ(shortfall(between(Op::mask, Op::softmax)), "");
  EXPECT_EQ(shortfall(between(Op::transpose, Op::gemm1)), "pieces: transpose | gemm1");
  EXPECT_EQ(shortfall(between(Op::gemm2, Op::bias3_residual)),
            "pieces: gemm2 | bias2+GELU | gemm3 | bias3+residual");
  const std::vector<fusion::Segment> segments{between(Op::gemm2, Op::gemm3)};
  const SchemeProgram program(fusion::Scheme(segments, fusion::Mha::written_by_hand),
                              target_of(model));
  EXPECT_EQ(program.shortfall(), "[gemm2 bias2+GELU gemm3] pieces: gemm2 | bias2+GELU | gemm3");
}

TEST(SchemeProgram, WrongSchemesAndChoicesAreRefused) {
  const Model model = TinyBert().model(at::kFloat);
  EXPECT_THROW(SchemeProgram(fusion::Scheme::from_number(1365), target_of(model)), Error);
  const fusion::Segment norm = between(Op::bias1_residual, Op::layer_norm1);
  EXPECT_EQ(models::bert::way_of(norm, target_of(model), "aten").how, "aten");
  EXPECT_EQ(models::bert::way_of(norm, target_of(model)).how, "written");
  EXPECT_THROW(models::bert::way_of(norm, target_of(model), "threads=128 rows=4 width=8"),
               UsageError);
  EXPECT_THROW(models::bert::way_of(between(Op::mask, Op::softmax), target_of(model), "written"),
               UsageError);
  EXPECT_EQ(models::bert::choices_of(norm, target_of(model), DType::f32, 64).size(), 1U);
}

// ---- on a GPU

class SchemesOnCuda : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const char* why = test::missing_gpu()) GTEST_SKIP() << why;
  }
};
INSTANTIATE_TEST_SUITE_P(Masks, SchemesOnCuda, testing::Values("none", "causal", "sliding:5"),
                         [](const auto& rule) {
                           const std::string name = rule.param;
                           return name.substr(0, name.find(':'));
                         });

// Each legal segment, in each way that may be chosen, among operators that run alone.
TEST_P(SchemesOnCuda, EachSegmentIsAsExactAsPlainPyTorch) {
  TinyBert tiny;
  tiny.layers = 1;
  tiny.heads = 3;
  tiny.head_dim = 64;
  tiny.inner = 384;
  const SequenceMask mask = SequenceMask::parse(std::vector<std::string>{GetParam()});
  const TinyBatch batch({131, 131}, tiny.vocab_size);
  const Tensor expected =
      tiny.model(at::kDouble)
          .states(batch.jagged(), Rows::jagged(batch.lengths, mask, at::kCPU), unfused());
  const Rows rows = Rows::jagged(batch.lengths, mask, at::kCUDA);
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    const DType dtype = type == at::kHalf ? DType::f16 : DType::bf16;
    const Model model = tiny.model(type, at::kCUDA);
    const auto error = [&](const models::bert::Program& program) {
      return largest_difference(model.states(batch.jagged(at::kCUDA), rows, program).cpu(),
                                expected);
    };
    const double most = 2 * error(unfused()) + 1e-4;
    for (int first = 0; first < fusion::kOps; ++first) {
      for (int last = first; last < fusion::kOps; ++last) {
        const fusion::Segment segment{first, last};
        if (segment.fused() && template_of(segment, fusion::Mha::written_by_hand) == nullptr)
          continue;
        const fusion::Scheme scheme(std::vector<fusion::Segment>{segment},
                                    fusion::Mha::written_by_hand);
        for (const std::string& choice :
             models::bert::choices_of(segment, target_of(model), dtype, 131)) {
          const SchemeProgram program(scheme, target_of(model),
                                      Choices{{name_of(segment), choice}});
          EXPECT_LE(error(program.program()), most)
              << fusion::name_of(segment) << ": " << choice << ", " << type;
          EXPECT_THAT(program.shortfall(), testing::Not(HasSubstr("plain PyTorch")));
        }
      }
    }
  }
}

}  // namespace
}  // namespace seqfuse::scheme_program_test
