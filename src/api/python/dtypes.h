// Names of dtypes as Python's torch has them.
#pragma once

#include <torch/types.h>

#include <string>

#include "base/error.h"

namespace seqfuse::api {

// The dtype of a name; of "auto", what automatic() returns. Throws UsageError for another name.
template <class Automatic>
at::ScalarType dtype_named(const std::string& name, Automatic&& automatic) {
  if (name == "float64") return at::kDouble;
  if (name == "float32") return at::kFloat;
  if (name == "float16") return at::kHalf;
  if (name == "bfloat16") return at::kBFloat16;
  SEQFUSE_CHECK_AS(UsageError, name == "auto",
                   "dtype is {}; expected float32, float16, bfloat16 or float64", name);
  return automatic();
}

}  // namespace seqfuse::api
