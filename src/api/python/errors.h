// seqfuse's exceptions as Python's.
#pragma once

#include <c10/util/Exception.h>

#include "base/error.h"

namespace seqfuse::api {

// The result of function(). UsageError and DataError become ValueError, all others RuntimeError.
template <class Function>
auto with_python_errors(Function&& function) {
  try {
    return function();
  } catch (const UsageError& error) {
    C10_THROW_ERROR(ValueError, error.what());
  } catch (const DataError& error) {
    C10_THROW_ERROR(ValueError, error.what());
  }
}

}  // namespace seqfuse::api
