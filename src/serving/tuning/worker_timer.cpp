#include "serving/tuning/worker_timer.h"

#include "base/error.h"
#include "fusion/codegen/row_kernel.h"

namespace seqfuse::serving {
namespace {

using nlohmann::json;

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

}  // namespace

std::optional<Timing> WorkerTimer::timing(const json& request) {
  const WorkerProcess::Answer answer = worker_.ask(request);
  switch (answer.kind) {
    case WorkerProcess::Answer::Kind::stopped:
      return std::nullopt;
    case WorkerProcess::Answer::Kind::timeout:
      return Timing{tuning::Status::timeout, 0, answer.why};
    case WorkerProcess::Answer::Kind::ended:
      return Timing{tuning::Status::failed, 0, "the process that measured it: " + answer.why};
    case WorkerProcess::Answer::Kind::line:
      break;
  }
  const auto status = tuning::status_of_name(answer.value.value("status", ""));
  SEQFUSE_CHECK(status.has_value(), "the process for measurements answered {}",
                answer.value.dump());
  return Timing{*status, answer.value.value("milliseconds", 0.0),
                first_line(answer.value.value("note", ""))};
}

std::optional<Timing> WorkerTimer::scheme(int64_t number, const SegmentChoices& choices) {
  return timing({{"scheme", number}, {"choices", choices}});
}

std::optional<Timing> WorkerTimer::segment(fusion::Segment segment, const std::string& choice) {
  return timing({{"segment", {segment.first, segment.last}}, {"choice", choice}});
}

std::vector<std::string> WorkerTimer::choices(fusion::Segment segment) {
  const json hello = worker_.hello().value;
  const std::string name = fusion::name_of(segment);
  if (!hello.contains("choices") || !hello["choices"].contains(name)) return {""};
  return hello["choices"][name].get<std::vector<std::string>>();
}

}  // namespace seqfuse::serving
