// The error for a loss, gradient or weight that is not finite.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "base/error.h"

namespace seqfuse::training {

// what(): "loss is nan in step 7".
class NotFinite : public Error {
 public:
  NotFinite(const std::string& what, double value, int64_t step)
      : Error(fmt::format("{} is {} in step {}", what, std::abs(value), step)) {}
};

}  // namespace seqfuse::training
