// Paths of the executable and the source tree, for tests.
#pragma once

#include <string>

namespace seqfuse::test {

std::string binary();            // the path of build/bin/seqfuse
std::string source_directory();  // of the checkout, without a slash at the end

}  // namespace seqfuse::test
