// Parameters that are accepted, so that files of other trainers load, but have no effect.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "config/roots.h"

namespace seqfuse::config {

struct WithoutEffect {
  std::string_view class_name, parameter;
  std::string_view reason;  // why it has no effect; "" if only one value is accepted anyway
};

std::span<const WithoutEffect> parameters_without_effect();

// A sentence that names those which the configuration changes from their default, with the reasons;
// "" if there are none.
std::string warn_without_effect(const Config& config);

}  // namespace seqfuse::config
