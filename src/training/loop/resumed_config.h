// Which settings may change when a run is resumed. docs/checkpoints.md lists them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/hstu/model_spec.h"
#include "report/parameters.h"

namespace seqfuse::training {

// Whether a resumed run may change this parameter: yes for speed and duration of training; no for
// the model, its training data and its evaluation. name: "Class.parameter", with or without a
// scope.
bool may_change_on_resume(std::string_view name);

// The parameters that differ between two operative configurations, each with both values. Throws
// UsageError that names those that must not change. run: for messages.
std::vector<report::Difference> changes_on_resume(const std::string& run, const std::string& before,
                                                  const std::string& now, models::hstu::Task task);

// A value of a report::Difference, for messages: "" is "unset".
std::string shown_value(const std::string& value);

}  // namespace seqfuse::training
