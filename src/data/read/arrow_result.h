// Arrow's results and statuses as exceptions.
#pragma once

#include <arrow/api.h>

#include <string>
#include <utility>

#include "base/error.h"

namespace seqfuse::data {

inline std::string arrow_message(const arrow::Status& status) {
  return status.detail() ? status.message() + ": " + status.detail()->ToString() : status.message();
}

// The value of an Arrow result. Throws E naming the file.
template <class E, class T>
T arrow_value(arrow::Result<T> result, const std::string& file) {
  if (!result.ok()) throw_error<E>("{}: {}", file, arrow_message(result.status()));
  return std::move(result).ValueUnsafe();
}
template <class E>
void arrow_check(const arrow::Status& status, const std::string& file) {
  if (!status.ok()) throw_error<E>("{}: {}", file, arrow_message(status));
}

}  // namespace seqfuse::data
