// docs/config.md, made from the registry.
#pragma once

#include <string>

namespace seqfuse::config {

// One table per class.
std::string config_reference();

}  // namespace seqfuse::config
