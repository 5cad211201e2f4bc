// A Timer whose measurements run in a child process: one that crashes or hangs is a failed measurement.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "serving/tuning/timer.h"
#include "serving/tuning/worker_process.h"

namespace seqfuse::serving {

class WorkerTimer : public Timer {
 public:
  // command: starts a process that calls serve_timings(). limits: of a measurement. stop: asked often.
  WorkerTimer(std::vector<std::string> command, WorkerProcess::Limits limits,
              std::function<bool()> stop)
      : worker_(std::move(command), limits, std::move(stop)) {}

  std::optional<Timing> scheme(int64_t number, const SegmentChoices& choices) override;
  std::optional<Timing> segment(fusion::Segment segment, const std::string& choice) override;
  std::vector<std::string> choices(fusion::Segment segment) override;

 private:
  std::optional<Timing> timing(const nlohmann::json& request);

  WorkerProcess worker_;
};

}  // namespace seqfuse::serving
