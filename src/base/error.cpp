#include "base/error.h"

#include <cerrno>
#include <system_error>

namespace seqfuse {

void throw_errno(const std::string& what) {
  const int code = errno;
  throw IoError(fmt::format("{}: {}", what, std::generic_category().message(code)));
}

}  // namespace seqfuse
