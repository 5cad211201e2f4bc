#include "serving/tuning/recorded_timer.h"

#include <algorithm>

namespace seqfuse::serving {
namespace {

constexpr const char *kFallback = "fallback: ", *kWhy = "why: ";

template <class Key>
std::map<Key, double> medians(std::map<Key, std::vector<double>>& times) {
  std::map<Key, double> result;
  for (auto& [key, values] : times) {
    std::sort(values.begin(), values.end());
    result[key] = values[values.size() / 2];
  }
  return result;
}

template <class Key>
Timing timing_of(const std::map<Key, double>& times, const Key& key, bool is_default) {
  const auto time = times.find(key);
  if (!is_default || time == times.end())
    return {tuning::Status::failed, 0, "there is no time of it in the record"};
  return {tuning::Status::ok, time->second, ""};
}

}  // namespace

bool has_default_choices(const tuning::Measurement& measurement) {
  const std::string& config = measurement.config;
  return config.empty() || config.starts_with(kFallback) || config.starts_with(kWhy);
}

std::string config_of(const std::string& choices, const Timing& timing) {
  if (timing.note.empty()) return choices;
  const char* what = timing.status == tuning::Status::ok ? kFallback : kWhy;
  return choices + (choices.empty() ? "" : "; ") + what + timing.note;
}

RecordedTimer::RecordedTimer(std::span<const tuning::Measurement> measurements) {
  std::map<int64_t, std::vector<double>> schemes;
  std::map<std::pair<int, int>, std::vector<double>> segments;
  for (const tuning::Measurement& m : measurements) {
    if (!m.milliseconds || !has_default_choices(m)) continue;
    auto& times = m.scheme ? schemes[*m.scheme] : segments[{m.segment->first, m.segment->last}];
    times.push_back(*m.milliseconds);
  }
  schemes_ = medians(schemes);
  segments_ = medians(segments);
}

int64_t RecordedTimer::fastest() const {
  const auto best =
      std::min_element(schemes_.begin(), schemes_.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return best == schemes_.end() ? 0 : best->first;
}

std::optional<Timing> RecordedTimer::scheme(int64_t number, const SegmentChoices& choices) {
  return timing_of(schemes_, number, choices.empty());
}

std::optional<Timing> RecordedTimer::segment(fusion::Segment segment, const std::string& choice) {
  return timing_of(segments_, std::pair(segment.first, segment.last), choice.empty());
}

}  // namespace seqfuse::serving
