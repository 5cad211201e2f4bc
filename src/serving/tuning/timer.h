// What a search asks to be measured, and what it gets.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fusion/scheme.h"
#include "tuning/measurement.h"

namespace seqfuse::serving {

// The kernel of each segment, by name_of(segment) of fusion/codegen/row_kernel.h
// (models/bert/scheme_program.h).
using SegmentChoices = std::map<std::string, std::string>;

struct Timing {
  tuning::Status status = tuning::Status::failed;
  double milliseconds = 0;  // ok: the median, above 0
  std::string note;         // ok: what did not run as one kernel; else what went wrong
};

class Timer {
 public:
  virtual ~Timer() = default;

  // All layers of a model by a legal scheme, checked against the unfused program first. None: stopped.
  virtual std::optional<Timing> scheme(int64_t number, const SegmentChoices& choices) = 0;
  // One segment of one layer, checked in the same way.
  virtual std::optional<Timing> segment(fusion::Segment segment, const std::string& choice) = 0;
  // The choices of a segment, the default first.
  virtual std::vector<std::string> choices(fusion::Segment segment) = 0;
};

}  // namespace seqfuse::serving
