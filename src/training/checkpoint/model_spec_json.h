// ModelSpec in a checkpoint's state.json.
#pragma once

#include <nlohmann/json.hpp>

#include "models/hstu/model_spec.h"

namespace seqfuse::training {

nlohmann::json to_json(const models::hstu::ModelSpec& spec);

// Throws DataError naming the field that is missing or of the wrong type.
models::hstu::ModelSpec spec_from_json(const nlohmann::json& json);

}  // namespace seqfuse::training
