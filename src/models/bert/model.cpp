#include "models/bert/model.h"

#include <utility>
#include <vector>

#include "base/error.h"
#include "ops/torch/encoder.h"

namespace seqfuse::models::bert {
using at::Tensor;

Tensor positions_of(std::span<const int64_t> lengths, at::Device device) {
  std::vector<int64_t> positions;
  for (const int64_t length : lengths) {
    for (int64_t i = 0; i < length; ++i) positions.push_back(i);
  }
  return at::tensor(positions, at::kLong).to(device);
}

Model::Model(const Config& config, Weights weights)
    : config_(config), weights_(std::move(weights)) {
  const bool wide = dtype() == at::kFloat || dtype() == at::kDouble;
  SEQFUSE_CHECK_AS(UsageError, wide == device().is_cpu(),
                   "a BERT of {} on {}; expected float32 or float64 on a CPU, float16 or bfloat16 "
                   "on a GPU",
                   c10::toString(dtype()), device().str());
  const int64_t d = config.head_dim();
  SEQFUSE_CHECK_AS(UsageError, device().is_cpu() || (d % 8 == 0 && d <= 128),
                   "a BERT with heads of {} on {}; expected a multiple of 8 up to 128, or a CPU", d,
                   device().str());
}

Model Model::load(const std::filesystem::path& directory, at::ScalarType dtype, at::Device device) {
  const Config config = load_config(directory);
  return {config, load_weights(config, directory, dtype, device)};
}

Tensor Model::embed(const Tokens& tokens) const {
  const at::NoGradGuard no_grad;
  const Tensor words = at::index_select(weights_.words, 0, tokens.ids);
  const Tensor positions = at::index_select(weights_.positions, 0, tokens.positions);
  const Tensor types = tokens.types.defined() ? at::index_select(weights_.types, 0, tokens.types)
                                              : weights_.types[0];
  return ops::add_norm(words, types, positions, weights_.norm_weight, weights_.norm_bias,
                       config_.layer_norm_eps);
}

Tensor Model::run_layers(Tensor states, const Rows& rows, const Program& program) const {
  const at::NoGradGuard no_grad;
  for (const LayerWeights& layer : weights_.layers) {
    states = program.run_layer(config_, layer, rows, rows.dense, states);
  }
  return states;
}

Tensor Model::states(const Tokens& tokens, const Rows& rows, const Program& program) const {
  SEQFUSE_CHECK(tokens.ids.numel() == rows.count(), "{} ids for {} rows", tokens.ids.numel(),
                rows.count());
  const Tensor embedded = embed(tokens);
  if (!program.needs_dense_mask() || rows.dense.defined())
    return run_layers(embedded, rows, program);
  Rows with_mask = rows;
  with_mask.dense = rows.dense_mask(device());
  return run_layers(embedded, with_mask, program);
}

at::ScalarType default_dtype(const std::filesystem::path& directory, at::Device device) {
  if (device.is_cpu()) return at::kFloat;
  load_config(directory);  // explains a folder that is none
  const at::ScalarType stored = stored_dtype(directory);
  return stored == at::kBFloat16 ? stored : at::kHalf;
}

}  // namespace seqfuse::models::bert
