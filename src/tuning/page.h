// Measurements of fusion schemes as one self-contained HTML page: for each setting and origin what was
// measured, measured against predicted times, the best so far, and the time of each segment.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tuning/measurement.h"

namespace seqfuse::tuning {

// title: the names of the files. version: of seqfuse. measurements: in the order in which they were made.
std::string html_page(std::string_view title, std::span<const Measurement> measurements,
                      std::string_view version);

}  // namespace seqfuse::tuning
