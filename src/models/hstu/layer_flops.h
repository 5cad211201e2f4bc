// FLOPs of the HSTU layers of a training step, by the convention of published figures.
#pragma once

#include <optional>

#include "data/batch/batch.h"
#include "models/hstu/model_spec.h"

namespace seqfuse::models::hstu {

// FLOPs of all layers, forward and backward, for a training batch. Products: 2 T 5 D H d forward (T
// tokens, width D, H heads of head_dim d), three times that in total. Attention: 4 H d per pair of
// query and key, half of the pairs under a causal mask; backward 2.5 times forward. Norms,
// activations, biases and recomputation are not counted. No value with NetworkArgs.max_attn_len.
std::optional<double> layer_flops(const ModelSpec& spec, const data::Batch& batch);

}  // namespace seqfuse::models::hstu
