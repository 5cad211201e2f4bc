// Parameters that are accepted, so that files of other trainers load, and that nothing reads.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "config/roots.h"

namespace seqfuse::config {

struct WithoutEffect {
  std::string_view class_name, parameter;
  std::string_view reason;  // why it has none; "" where only one value is accepted at all
};

std::span<const WithoutEffect> parameters_without_effect();

// A sentence that names those which the configuration sets to something else than their default,
// with the reasons; "" if there is none.
std::string warn_without_effect(const Config& config);

}  // namespace seqfuse::config
