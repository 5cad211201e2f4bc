// GPT-NeoX models of published shapes with random weights, to measure speed without a checkpoint.
#pragma once

#include <torch/types.h>

#include <map>
#include <string>
#include <vector>

#include "models/gpt_neox/config.h"

namespace seqfuse::serving {

// pythia-70m, pythia-160m, ..., gpt-neox-20b.
std::vector<std::string> shape_names();
// Throws UsageError: no such shape.
models::gpt_neox::Config named_shape(const std::string& name);

// The tensors that make_weights takes for a config, with small random values. All share the memory of the
// largest; make_weights copies them.
std::map<std::string, at::Tensor> random_tensors(const models::gpt_neox::Config& config,
                                                 at::ScalarType dtype, at::Device device);

}  // namespace seqfuse::serving
