// What the HSTU layers of a training step compute, by the convention of published figures.
#pragma once

#include <optional>

#include "data/batch/batch.h"
#include "models/hstu/model_spec.h"

namespace seqfuse::models::hstu {

// FLOPs of all layers, forward and backward, for a training batch. Products: 2 T 5 D H d forward
// (T tokens, width D, H heads of head_dim d), three times that in all. Attention: 4 H d for each
// pair of query and key, of which a causal mask has half; backward 2.5 times forward. Norms,
// activations, biases and what is computed again are not counted. None with
// NetworkArgs.max_attn_len.
std::optional<double> layer_flops(const ModelSpec& spec, const data::Batch& batch);

}  // namespace seqfuse::models::hstu
