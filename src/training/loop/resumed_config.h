// What of a run's configuration may change when it is resumed. docs/checkpoints.md lists it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/hstu/model_spec.h"
#include "report/parameters.h"

namespace seqfuse::training {

// Whether a run may go on with another value: how fast and for how long it trains. What the model
// is, what it is trained on and what it is measured on may not change. name: "Class.parameter",
// with or without a scope.
bool may_change_on_resume(std::string_view name);

// The parameters that differ between two operative configurations, each with the value before and
// now. Throws UsageError that names those that may not change. run: for messages.
std::vector<report::Difference> changes_on_resume(const std::string& run, const std::string& before,
                                                  const std::string& now, models::hstu::Task task);

// A value of a report::Difference, for messages: "" is "unset".
std::string shown_value(const std::string& value);

}  // namespace seqfuse::training
