// Parameters that are accepted, so that files of other trainers load, but have no effect.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

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

// What a run does not use of its configuration, because of its task, data or device: one note each.
struct RunKind {
  Task task = Task::retrieval;
  bool is_on_gpu = false;
};
std::vector<std::string> notes_of_no_effect(const Config& config, const RunKind& run);

}  // namespace seqfuse::config
