// Generated kernels: what may be generated, tiles, and that NVRTC compiles the source.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "fusion/codegen/source.h"
#include "fusion/compile/nvrtc.h"
#include "fusion/legality.h"

namespace seqfuse::generated_source_test {
namespace {

using fusion::index_of;
using fusion::Op;
using fusion::RowKernel;
using fusion::Segment;
using fusion::Tile;
using testing::HasSubstr;
using testing::Not;

constexpr Segment segment_of(Op first, Op last) {
  return {index_of(first), index_of(last)};
}

// BERT-base with sequences of 512 tokens.
RowKernel kernel_of(Segment run, DType dtype = DType::f16) {
  RowKernel kernel{.run = run, .dtype = dtype, .columns = 768, .heads = 12, .head_dim = 64};
  if (run.first == index_of(Op::mask) || run.first == index_of(Op::softmax)) kernel.columns = 512;
  if (run.first == index_of(Op::bias0_split)) kernel.columns = 3 * 768;
  if (run.first == index_of(Op::bias2_gelu)) kernel.columns = 3072;
  return kernel;
}

// Legal segments, operators alone among them, without a product.
std::vector<Segment> generated_segments() {
  std::vector<Segment> segments;
  for (int first = 0; first < fusion::kOps; ++first) {
    for (int last = first; last < fusion::kOps; ++last) {
      const Segment segment{first, last};
      const bool legal =
          !segment.fused() || template_of(segment, fusion::Mha::written_by_hand) != nullptr;
      if (legal && fusion::can_generate(segment)) segments.push_back(segment);
    }
  }
  return segments;
}

// The compiler's words; "": it compiles.
std::string complaint(const RowKernel& kernel, const Tile& tile) {
  const auto result =
      fusion::Nvrtc::get().compile(source_of(kernel, tile), name_of(kernel.run), "sm_90");
  return result.cubin.empty() ? result.log + "\n" + source_of(kernel, tile) : result.log;
}

TEST(GeneratedSource, ListsTheRunsThatCanBeGenerated) {
  EXPECT_EQ(generated_segments().size(), 12U);
  EXPECT_FALSE(fusion::can_generate(segment_of(Op::gemm1, Op::bias1_residual)));
  EXPECT_FALSE(fusion::can_generate(segment_of(Op::qk, Op::transpose)));
  EXPECT_EQ(name_of(segment_of(Op::bias1_residual, Op::layer_norm1)), "bias1_residual_norm1");
}

TEST(GeneratedSource, TilesAsText) {
  const Tile tile{.threads = 256, .rows = 2, .width = 4};
  EXPECT_EQ(text_of(tile), "threads=256 rows=2 width=4");
  EXPECT_EQ(fusion::read_tile("threads=256 rows=2 width=4"), tile);
  for (const char* text : {"", "threads=256", "threads=256 rows=2 width=4x", "rows=2 threads=256"})
    EXPECT_THROW(fusion::read_tile(text), UsageError) << text;
}

TEST(GeneratedSource, TilesFitTheirRows) {
  const RowKernel norm = kernel_of(segment_of(Op::bias1_residual, Op::layer_norm1));
  EXPECT_EQ(default_tile(norm), (Tile{128, 4, 8}));
  for (const Segment segment : generated_segments()) {
    const RowKernel kernel = kernel_of(segment);
    const auto tiles = tiles_of(kernel);
    EXPECT_GT(tiles.size(), 3U) << name_of(segment);
    for (const Tile& tile : tiles) EXPECT_EQ(why_unfit(kernel, tile), "") << text_of(tile);
  }
  EXPECT_THAT(why_unfit(norm, {100, 1, 8}), HasSubstr("whole warps"));
  EXPECT_THAT(why_unfit(norm, {128, 4, 16}), HasSubstr("width 16"));
  EXPECT_THAT(why_unfit(norm, {256, 1, 8}), HasSubstr("a warp would have none"));
  RowKernel odd = norm;
  odd.columns = 771;
  EXPECT_EQ(default_tile(odd).width, 1);
  odd.columns = 1 << 20;
  EXPECT_THROW(default_tile(odd), Error);
  EXPECT_THROW(source_of(norm, {100, 1, 8}), Error);
}

TEST(GeneratedSource, SaysWhatItComputes) {
  const RowKernel norm = kernel_of(segment_of(Op::bias1_residual, Op::layer_norm1));
  const std::string source = source_of(norm, default_tile(norm));
  EXPECT_THAT(source, HasSubstr("// bias1+residual, LN1: rows of 768 float16 elements."));
  EXPECT_THAT(source,
              HasSubstr("v += to_float(b.element[k]);\n      v += to_float(r.element[k]);"));
  EXPECT_THAT(source, HasSubstr("constexpr float kEpsilon = 1e-12f;"));
  EXPECT_THAT(source, Not(HasSubstr("__syncthreads")));  // a row has one warp
  EXPECT_THAT(source_of(norm, {96, 1, 8}), HasSubstr("__syncthreads"));
}

TEST(GeneratedSource, EachSegmentCompiles) {
  if (const std::string& why = fusion::Nvrtc::get().absence(); !why.empty()) GTEST_SKIP() << why;
  DType dtype = DType::f16;
  for (const Segment segment : generated_segments()) {
    dtype = dtype == DType::f16 ? DType::bf16 : DType::f16;
    const RowKernel kernel = kernel_of(segment, dtype);
    EXPECT_EQ(complaint(kernel, default_tile(kernel)), "");
  }
}

TEST(GeneratedSource, OddRowsAndActivationsCompile) {
  if (const std::string& why = fusion::Nvrtc::get().absence(); !why.empty()) GTEST_SKIP() << why;
  RowKernel softmax = kernel_of(segment_of(Op::mask, Op::softmax));
  softmax.columns = 131;
  EXPECT_EQ(complaint(softmax, {256, 4, 1}), "");
  RowKernel norm = kernel_of(segment_of(Op::bias3_residual, Op::layer_norm2), DType::bf16);
  norm.columns = 1000;
  EXPECT_EQ(complaint(norm, {384, 4, 4}), "");
  RowKernel activation = kernel_of(segment_of(Op::bias2_gelu, Op::bias2_gelu));
  for (const auto kind : {fusion::ActivationKind::gelu_tanh, fusion::ActivationKind::relu}) {
    activation.activation = kind;
    EXPECT_EQ(complaint(activation, {128, 1, 4}), "");
  }
}

}  // namespace
}  // namespace seqfuse::generated_source_test
