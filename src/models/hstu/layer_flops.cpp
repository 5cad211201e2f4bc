#include "models/hstu/layer_flops.h"

#include <algorithm>

#include "models/hstu/windows.h"

namespace seqfuse::models::hstu {

std::optional<double> layer_flops(const ModelSpec& spec, const data::Batch& batch) {
  const config::NetworkArgs& network = spec.network;
  if (network.max_attn_len > 0) return std::nullopt;
  double tokens = 0, pairs = 0;
  for (int64_t b = 0; b < batch.batch_size(); ++b) {
    const WindowTokens window = window_tokens(spec, batch, b);
    const auto c = static_cast<double>(window.contexts), h = static_cast<double>(window.history),
               t = static_cast<double>(window.targets);
    const double group = std::min(static_cast<double>(network.target_group_size), t);
    const double causal = context_sees_history(spec) ? h : c + h;
    tokens += c + h + t;
    pairs += (c + h + t) * (c + h) - causal * causal / 2 + t * (group + 1) / 2;
  }
  const auto width = static_cast<double>(network.hidden_size),
             inner = static_cast<double>(network.num_attention_heads * network.kv_channels);
  const double products = 3 * 2 * tokens * 5 * width * inner, attention = 3.5 * 4 * inner * pairs;
  return static_cast<double>(network.num_layers) * (products + attention);
}

}  // namespace seqfuse::models::hstu
