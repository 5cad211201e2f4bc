#include <algorithm>
#include <cmath>
#include <limits>

#include "certify/margins.h"

namespace seqfuse::certify {
namespace {

constexpr double kStep = 4;  // between radii while no bracket is known

// Radii to try next, rising, between the largest certified one and the next that is not.
std::vector<double> next_radii(const Radius& known, const SearchOptions& options) {
  std::vector<double> radii;
  const double low = known.certified, high = known.not_certified;
  const auto count = static_cast<double>(options.together);
  for (double i = 1; i <= count; ++i) {
    if (low > 0 && std::isfinite(high)) {
      radii.push_back(low * std::pow(high / low, i / (count + 1)));
    } else if (low > 0) {
      radii.push_back(std::min(low * std::pow(kStep, i), options.largest));
    } else if (std::isfinite(high)) {
      radii.push_back(std::max(high * std::pow(kStep, i - count - 1), options.smallest));
    } else {
      radii.push_back(options.first * std::pow(kStep, i - std::ceil(count / 2)));
    }
  }
  return radii;
}

bool is_found(const Radius& known, const SearchOptions& options) {
  return known.not_certified <= options.smallest || known.certified >= options.largest ||
         known.not_certified <= known.certified * (1 + options.tolerance);
}

}  // namespace

std::optional<Radius> largest_radius(
    const std::function<std::vector<double>(const std::vector<double>&)>& certify,
    const SearchOptions& options, const std::function<bool()>& go_on) {
  Radius known{.not_certified = std::numeric_limits<double>::infinity()};
  if (!go_on()) return std::nullopt;
  known.tried = 1;
  if (!(certify({0.0}).front() > 0)) {
    known.not_certified = 0;
    return known;
  }
  while (!is_found(known, options)) {
    if (!go_on()) return std::nullopt;
    const std::vector<double> radii = next_radii(known, options);
    const std::vector<double> found = certify(radii);
    known.tried += static_cast<int64_t>(radii.size());
    for (size_t i = 0; i < radii.size(); ++i) {
      if (found[i] > 0) known.certified = std::max(known.certified, radii[i]);
    }
    for (size_t i = 0; i < radii.size(); ++i) {
      if (!(found[i] > 0) && radii[i] > known.certified) {
        known.not_certified = std::min(known.not_certified, radii[i]);
      }
    }
  }
  return known;
}

}  // namespace seqfuse::certify
