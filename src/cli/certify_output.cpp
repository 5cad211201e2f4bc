#include "cli/certify_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace seqfuse::cli {
namespace {

using nlohmann::json;

json finite_or_null(double value) {
  return std::isfinite(value) ? json(value) : json(nullptr);
}

}  // namespace

std::string certify_text(const CertifyRequest& request, const CertifiedSentence& sentence) {
  const std::string which = fmt::format("line {}: label {}", sentence.line, sentence.label);
  if (sentence.label != sentence.predicted) {
    return fmt::format("{}: not certified: the model predicts {}", which, sentence.predicted);
  }
  if (request.eps) {
    const bool certified = sentence.smallest_lower > 0;
    const std::string bound =
        std::isfinite(sentence.smallest_lower)
            ? fmt::format("the margin is at least {:.6g}", sentence.smallest_lower)
            : "no bound of the margin was found";
    return fmt::format("{}: {} at {:g}: {}", which, certified ? "certified" : "not certified",
                       *request.eps, bound);
  }
  if (!std::isfinite(sentence.not_certified)) {
    return fmt::format("{}: certified up to {:g}, where the search ends", which, sentence.radius);
  }
  if (sentence.radius == 0) return fmt::format("{}: not certified at any radius", which);
  return fmt::format("{}: certified radius {:.6g}", which, sentence.radius);
}

std::string certify_json(const CertifyRequest& request, const CertifiedSentence& sentence) {
  json margins = json::array();
  for (size_t other = 0; other < sentence.lower.size(); ++other) {
    if (static_cast<int64_t>(other) == sentence.label) continue;
    margins.push_back({{"class", other},
                       {"lower", finite_or_null(sentence.lower[other])},
                       {"upper", finite_or_null(sentence.upper[other])}});
  }
  json result = {{"line", sentence.line},
                 {"tokens", sentence.tokens},
                 {"positions", sentence.positions},
                 {"label", sentence.label},
                 {"predicted", sentence.predicted},
                 {"logits", sentence.logits},
                 {"norm", request.norm},
                 {"method", request.method},
                 {"dtype", request.dtype},
                 {"device", request.device},
                 {"margins", margins},
                 {"seconds", sentence.seconds}};
  if (request.eps) {
    result["eps"] = *request.eps;
    result["certified"] = sentence.smallest_lower > 0;
  } else {
    result["radius"] = sentence.radius;
    result["not_certified"] = finite_or_null(sentence.not_certified);
    result["tried"] = sentence.tried;
    result["certified"] = sentence.radius > 0;
  }
  return result.dump();
}

}  // namespace seqfuse::cli
