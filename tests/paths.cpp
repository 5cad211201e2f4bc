#include "tests/paths.h"

namespace seqfuse::test {

std::string binary() {
  return SEQFUSE_BINARY;
}

std::string source_directory() {
  return SEQFUSE_SOURCE_DIR;
}

}  // namespace seqfuse::test
