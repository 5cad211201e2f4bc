// Formats the result of `seqfuse certify` for a sentence: a line of text, or of JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace seqfuse::cli {

struct CertifyRequest {  // the same for all sentences
  std::string norm, method, dtype, device;
  std::optional<double> eps;  // none: the largest radius is searched
};

struct CertifiedSentence {
  int64_t line = 1, tokens = 0, label = 0, predicted = 0;
  std::vector<int64_t> positions;
  std::vector<double> logits;
  // Bounds of label - other class, 0 for the label itself: at eps, or at the radius that a search found.
  std::vector<double> lower, upper;
  double smallest_lower = 0;
  // Set by a search.
  double radius = 0, not_certified = 0;
  int64_t tried = 0;
  double seconds = 0;
};

std::string certify_text(const CertifyRequest& request, const CertifiedSentence& sentence);
std::string certify_json(const CertifyRequest& request, const CertifiedSentence& sentence);

}  // namespace seqfuse::cli
