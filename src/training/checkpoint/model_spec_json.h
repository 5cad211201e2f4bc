// ModelSpec in a checkpoint's state.json.
#pragma once

#include <nlohmann/json.hpp>

#include "models/hstu/model.h"

namespace seqfuse::training {

nlohmann::json to_json(const models::ModelSpec& spec);

// Throws DataError naming the field that is missing or of the wrong type.
models::ModelSpec spec_from_json(const nlohmann::json& json);

}  // namespace seqfuse::training
