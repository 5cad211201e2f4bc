// A Timer that answers from measurements that were made before: searches can be compared without a GPU.
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "serving/tuning/timer.h"

namespace seqfuse::serving {

class RecordedTimer : public Timer {
 public:
  // All measurements have one setting and origin. Repeated measurements count by their median; those with
  // chosen tiles are skipped.
  explicit RecordedTimer(std::span<const tuning::Measurement> measurements);

  // Programs that have a time, and the fastest of them; 0: none.
  int64_t programs() const { return static_cast<int64_t>(schemes_.size()); }
  int64_t fastest() const;
  // The time of a program that has one.
  double milliseconds(int64_t scheme) const { return schemes_.at(scheme); }

  // Programs and segments without a recorded time count as failed.
  std::optional<Timing> scheme(int64_t number, const SegmentChoices& choices) override;
  std::optional<Timing> segment(fusion::Segment segment, const std::string& choice) override;
  std::vector<std::string> choices(fusion::Segment) override { return {""}; }

 private:
  std::map<int64_t, double> schemes_;
  std::map<std::pair<int, int>, double> segments_;
};

// Whether a measurement was of a program or segment with nothing chosen, from Measurement::config.
bool has_default_choices(const tuning::Measurement& measurement);

// Measurement::config of a timing: what was chosen, and what did not run as one kernel or went wrong.
std::string config_of(const std::string& choices, const Timing& timing);

}  // namespace seqfuse::serving
