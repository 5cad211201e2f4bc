#include "models/bert/scheme_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "fusion/codegen/row_kernel.h"
#include "fusion/legality.h"
#include "models/bert/generated_run.h"
#include "models/bert/joined_loops.h"
#include "models/bert/library_runs.h"

namespace seqfuse::models::bert {
namespace {

using at::Tensor;

bool is(fusion::Segment segment, Op first, Op last) {
  return segment.first == index_of(first) && segment.last == index_of(last);
}

bool reads_mask(fusion::Segment segment) {
  return segment.first <= index_of(Op::softmax) && segment.last >= index_of(Op::mask);
}

std::string operators_of(fusion::Segment segment) {
  std::string names;
  for (int op = segment.first; op <= segment.last; ++op)
    names += (names.empty() ? "" : " ") + std::string(kGraph[static_cast<size_t>(op)].name);
  return names;
}

const Segment* written(fusion::Segment segment) {
  for (const Segment& of_hand : fused().segments()) {
    if (is(segment, of_hand.first, of_hand.last)) return &of_hand;
  }
  return nullptr;
}

SegmentWay make_way(fusion::Segment segment, std::string how,
                    std::function<Tensor(const LayerRun&)> run, bool dense = false) {
  return {
      .segment = segment,
      .how = std::move(how),
      .fallback = {},
      .run = {static_cast<Op>(segment.first), static_cast<Op>(segment.last), std::move(run), dense},
      .generated = {}};
}

SegmentWay generated_way(fusion::Segment segment, const Target& target,
                         std::optional<fusion::Tile> tile) {
  auto generated = std::make_shared<GeneratedRun>(segment, tile, target.cache);
  SegmentWay way = make_way(
      segment, "generated", [generated](const LayerRun& layer) { return (*generated)(layer); },
      reads_mask(segment));
  way.generated.push_back(std::move(generated));
  return way;
}

SegmentWay aten_way(fusion::Segment segment) {
  return make_way(
      segment, "aten", [segment](const LayerRun& layer) { return run_by_aten(layer, segment); },
      reads_mask(segment));
}

bool can_choose_tiles(fusion::Segment segment, const Target& target) {
  return target.device.is_cuda() && fusion::can_generate(segment);
}

// Products with an epilogue that a library computes.
std::optional<SegmentWay> library_way(fusion::Segment segment, const Target& target) {
  if (is(segment, Op::qk, Op::qk)) return make_way(segment, "library", scores);
  if (is(segment, Op::qk, Op::mask)) return make_way(segment, "library", masked_scores, true);
  if (is(segment, Op::pv, Op::pv)) return make_way(segment, "library", values);
  if (is(segment, Op::pv, Op::transpose)) return make_way(segment, "library", values_as_rows);
  if (target.device.is_cpu()) return std::nullopt;
  if (is(segment, Op::gemm1, Op::bias1_residual))
    return make_way(segment, "library", product1_bias_residual);
  if (is(segment, Op::gemm3, Op::bias3_residual))
    return make_way(segment, "library", product3_bias_residual);
  // The library's GELU is the one with tanh.
  if (is(segment, Op::gemm2, Op::bias2_gelu) && target.config.activation != Activation::gelu_erf)
    return make_way(segment, "library", product2_activation);
  return std::nullopt;
}

std::optional<SegmentWay> joined_loop(fusion::Segment segment) {
  if (is(segment, Op::mask, Op::softmax)) {
    return make_way(
        segment, "generated",
        [](const LayerRun& run) { return mask_and_softmax(run.of(Op::qk), run.dense_mask); }, true);
  }
  if (is(segment, Op::bias1_residual, Op::bias1_residual)) {
    return make_way(segment, "generated", [](const LayerRun& run) {
      return bias_and_residual(run.of(Op::gemm1), run.weights.bias1, run.input);
    });
  }
  if (is(segment, Op::bias3_residual, Op::bias3_residual)) {
    return make_way(segment, "generated", [](const LayerRun& run) {
      return bias_and_residual(run.of(Op::gemm3), run.weights.bias3, run.of(Op::layer_norm1));
    });
  }
  return std::nullopt;
}

std::optional<SegmentWay> way_as_one(fusion::Segment segment, const Target& target) {
  if (const Segment* by_hand = written(segment))
    return make_way(segment, "written", by_hand->run, by_hand->reads_dense_mask);
  if (auto library = library_way(segment, target)) return library;
  if (can_choose_tiles(segment, target)) return generated_way(segment, target, std::nullopt);
  if (auto loop = joined_loop(segment)) return loop;
  if (!segment.fused()) return aten_way(segment);
  return std::nullopt;
}

// The longest beginning that runs as one, then the rest in the same way.
SegmentWay way_in_pieces(fusion::Segment segment, const Target& target) {
  std::vector<SegmentWay> pieces;
  SegmentWay whole;
  for (int first = segment.first; first <= segment.last;) {
    std::optional<SegmentWay> piece;
    for (int last = segment.last; !piece; --last) piece = way_as_one({first, last}, target);
    first = piece->segment.last + 1;
    whole.fallback += (pieces.empty() ? "" : " | ") + operators_of(piece->segment);
    whole.generated.insert(whole.generated.end(), piece->generated.begin(), piece->generated.end());
    pieces.push_back(*std::move(piece));
  }
  SegmentWay way = make_way(
      segment, "pieces",
      [pieces](const LayerRun& layer) {
        LayerRun inner = layer;
        for (const SegmentWay& piece : pieces)
          inner.outputs[static_cast<size_t>(piece.segment.last)] = piece.run.run(inner);
        return inner.of(pieces.back().run.last);
      },
      std::any_of(pieces.begin(), pieces.end(),
                  [](const SegmentWay& piece) { return piece.run.reads_dense_mask; }));
  way.fallback = whole.fallback;
  way.generated = whole.generated;
  return way;
}

std::vector<Segment> runs_of(const std::vector<SegmentWay>& ways) {
  std::vector<Segment> runs;
  for (const SegmentWay& way : ways) runs.push_back(way.run);
  return runs;
}

std::vector<SegmentWay> ways_of(const fusion::Scheme& scheme, const Target& target,
                                const Choices& choices) {
  const fusion::Legality legality = fusion::check(scheme);
  SEQFUSE_CHECK(legality.holds(), "the scheme {} is not legal; its legal form is {}",
                scheme.number(), legality.legal.number());
  std::vector<SegmentWay> ways;
  for (const fusion::Segment& segment : scheme.segments()) {
    const auto chosen = choices.find(fusion::name_of(segment));
    ways.push_back(way_of(segment, target, chosen == choices.end() ? "" : chosen->second));
  }
  return ways;
}

}  // namespace

std::string SegmentWay::shortfall() const {
  std::string text = fallback.empty() ? "" : "pieces: " + fallback;
  for (const auto& run : generated) {
    const std::string failure = run->failure();
    if (failure.empty()) continue;
    text += text.empty() ? "" : "; ";
    text += "plain PyTorch, since " + failure.substr(0, failure.find('\n'));
  }
  return text;
}

SegmentWay way_of(fusion::Segment segment, const Target& target, const std::string& choice) {
  const auto refuse = [&](const char* expected) {
    throw_error<UsageError>("the segment {} cannot run as '{}': {}", operators_of(segment), choice,
                            expected);
  };
  if (choice == "aten") return aten_way(segment);
  if (choice == "written" && written(segment) == nullptr) refuse("no kernel was written for it");
  if (!choice.empty() && choice != "written") {
    if (!can_choose_tiles(segment, target))
      refuse("kernels are generated for rows of elementwise operators, on a GPU");
    if (choice == "generated") return generated_way(segment, target, std::nullopt);
    return generated_way(segment, target, fusion::read_tile(choice));
  }
  if (auto way = way_as_one(segment, target)) return *std::move(way);
  return way_in_pieces(segment, target);
}

std::vector<std::string> choices_of(fusion::Segment segment, const Target& target, DType dtype,
                                    int64_t tokens) {
  if (!can_choose_tiles(segment, target)) return {""};
  std::vector<std::string> choices{""};
  const int64_t columns =
      is(segment, Op::bias0_split, Op::bias0_split) ? 3 * target.config.hidden_size
      : is(segment, Op::bias2_gelu, Op::bias2_gelu) ? target.config.intermediate_size
      : reads_mask(segment)                         ? tokens
                                                    : target.config.hidden_size;
  for (const fusion::Tile& tile :
       fusion::tiles_of(row_kernel(segment, target.config, dtype, columns)))
    choices.push_back(fusion::text_of(tile));
  choices.push_back("aten");
  return choices;
}

SchemeProgram::SchemeProgram(const fusion::Scheme& scheme, const Target& target,
                             const Choices& choices)
    : ways_(ways_of(scheme, target, choices)), program_(runs_of(ways_)) {}

std::string SchemeProgram::shortfall() const {
  std::string text;
  for (const SegmentWay& way : ways_) {
    const std::string of_way = way.shortfall();
    if (!of_way.empty())
      text += (text.empty() ? "[" : "; [") + operators_of(way.segment) + "] " + of_way;
  }
  return text;
}

}  // namespace seqfuse::models::bert
