#include "serving/tuning/serve_timings.h"

#include <cmath>

#include "base/error.h"
#include "fusion/codegen/row_kernel.h"
#include "fusion/legality.h"
#include "serving/tuning/worker_timer.h"

namespace seqfuse::serving {
namespace {

using nlohmann::json;
using tuning::Status;

Timing measure(ProgramBench& bench, const json& request) {
  if (request.contains("scheme"))
    return bench.scheme(request["scheme"], request["choices"].get<SegmentChoices>());
  const auto ends = request.at("segment").get<std::array<int, 2>>();
  return bench.segment({ends[0], ends[1]}, request.at("choice"));
}

json failure(const char* why, bool ends) {
  return {{"status", tuning::name_of(Status::failed)}, {"note", why}, {"ends", ends}};
}

json answer_to(ProgramBench& bench, const json& request) {
  try {
    const Timing timing = measure(bench, request);
    return {{"status", tuning::name_of(timing.status)},
            {"milliseconds", timing.milliseconds},
            {"note", timing.note}};
  } catch (const Error& error) {
    return failure(error.what(), false);
  } catch (const std::exception& error) {  // after an error of the GPU nothing else would run
    return failure(error.what(), true);
  }
}

// The choices of every segment that can be generated.
json all_choices(const ProgramBench& bench) {
  json all = json::object();
  for (int first = 0; first < fusion::kOps; ++first) {
    for (int last = first; last < fusion::kOps; ++last) {
      const fusion::Segment segment{first, last};
      const bool legal =
          !segment.fused() || fusion::template_of(segment, fusion::Mha::written_by_hand) != nullptr;
      if (legal && fusion::can_generate(segment))
        all[fusion::name_of(segment)] = bench.choices(segment);
    }
  }
  return all;
}

}  // namespace

void serve_timings(ProgramBench& bench) {
  serve_requests({{"choices", all_choices(bench)}},
                 [&](const json& request) { return answer_to(bench, request); });
}

}  // namespace seqfuse::serving
