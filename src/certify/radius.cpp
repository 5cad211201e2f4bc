#include "certify/radius.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

namespace seqfuse::certify {
namespace {

constexpr double kStep = 4;  // between radii while no bracket is known

struct Tried {
  double radius, margin;
};

// Looks for the radius where the margin is 0, between the largest certified radius and the next one that is
// not. The margin falls smoothly, so a curve through what was found says where to look next.
class RadiusSearch {
 public:
  explicit RadiusSearch(const SearchOptions& options) : options_(options) {}

  void add(double radius, double margin) {
    tried_.push_back({radius, margin});
    if (margin > 0 && radius > known_.certified) known_.certified = radius;
    ++known_.tried;
    known_.not_certified = std::numeric_limits<double>::infinity();
    for (const Tried& tried : tried_) {
      if (!(tried.margin > 0) && tried.radius > known_.certified)
        known_.not_certified = std::min(known_.not_certified, tried.radius);
    }
  }
  const Radius& known() const { return known_; }

  bool is_found() const {
    return known_.not_certified <= options_.smallest || known_.certified >= options_.largest ||
           known_.not_certified <= known_.certified * (1 + options_.tolerance);
  }

  // Radii to try next, rising.
  std::vector<double> next(int64_t count) {
    const double low = known_.certified, high = known_.not_certified;
    std::vector<double> radii;
    for (int64_t i = 1; i <= count; ++i) {
      const auto steps = static_cast<double>(i);
      if (low > 0 && std::isfinite(high)) {
        radii = within(low, high, count);
        break;
      }
      if (low > 0) {
        radii.push_back(std::min(low * std::pow(kStep, steps), options_.largest));
      } else if (std::isfinite(high)) {
        radii.push_back(std::max(high * std::pow(kStep, steps - static_cast<double>(count) - 1),
                                 options_.smallest));
      } else {
        const double middle = std::ceil(static_cast<double>(count) / 2);
        radii.push_back(options_.first * std::pow(kStep, steps - middle));
      }
    }
    return radii;
  }

 private:
  // Estimates the radius between low and high where the margin is 0. Nothing if a margin is infinite.
  std::optional<double> guess(double low, double high) const {
    const Tried *a = nullptr, *b = nullptr, *c = nullptr;  // at low, at high, and the next nearest
    for (const Tried& tried : tried_) {
      if (!std::isfinite(tried.margin)) continue;
      if (tried.radius == low) {
        a = &tried;
      } else if (tried.radius == high) {
        b = &tried;
      } else if (!c || std::abs(tried.radius - low) < std::abs(c->radius - low)) {
        c = &tried;
      }
    }
    if (!a || !b) return std::nullopt;
    const double line = low + (high - low) * a->margin / (a->margin - b->margin);
    if (c && c->margin != a->margin && c->margin != b->margin) {
      // The parabola of the radius by the margin, through all three, at 0.
      const auto share = [](const Tried& x, const Tried& y, const Tried& z) {
        return x.radius * (y.margin * z.margin) / ((x.margin - y.margin) * (x.margin - z.margin));
      };
      const double curve = share(*a, *b, *c) + share(*b, *a, *c) + share(*c, *a, *b);
      if (curve > low && curve < high) return curve;
    }
    return line > low && line < high ? std::optional(line) : std::nullopt;
  }

  // Around the guess, ever further from it. Where the last guesses helped little: evenly, as bisection does.
  std::vector<double> within(double low, double high, int64_t count) {
    const double width = std::log(high / low);
    const bool helped = width <= last_width_ / (static_cast<double>(count) + 1);
    std::optional<double> root = helped || !was_guess_ ? guess(low, high) : std::nullopt;
    if (root && !(std::log(*root / low) > 0 && std::log(high / *root) > 0)) root.reset();
    last_width_ = width;
    was_guess_ = root.has_value();
    std::vector<double> radii;
    if (!root) {
      for (int64_t i = 1; i <= count; ++i) {
        radii.push_back(low *
                        std::exp(width * static_cast<double>(i) / static_cast<double>(count + 1)));
      }
      return radii;
    }
    const double nearest = 0.4 * std::log1p(options_.tolerance);
    const double below = std::log(*root / low), above = std::log(high / *root);
    if (count == 1) {  // on the side that leaves a narrow bracket if the guess is good
      return {std::clamp(*root * std::exp(below > above ? -nearest : nearest),
                         low * std::exp(below * 0.5), high * std::exp(-above * 0.5))};
    }
    const int64_t sides[] = {count / 2, count - count / 2};
    for (const int side : {0, 1}) {
      const double room = side == 0 ? below : above;
      const double first = std::min(nearest, room / 2);
      for (int64_t i = 0; i < sides[side]; ++i) {
        const double share = static_cast<double>(i) / static_cast<double>(sides[side]);
        const double distance = first * std::pow(room / first, share);
        radii.push_back(*root * std::exp(side == 0 ? -distance : distance));
      }
    }
    std::ranges::sort(radii);
    return radii;
  }

  SearchOptions options_;
  std::vector<Tried> tried_;
  Radius known_{.not_certified = std::numeric_limits<double>::infinity()};
  double last_width_ = std::numeric_limits<double>::infinity();
  bool was_guess_ = false;
};

}  // namespace

std::optional<Radius> largest_radius(
    const std::function<std::vector<double>(const std::vector<double>&)>& certify,
    const SearchOptions& options, const std::function<bool()>& go_on) {
  RadiusSearch search(options);
  // Radius 0 goes first, together with others if several are tried at once.
  std::vector<double> radii{0.0};
  if (options.together > 1) {
    const std::vector<double> others = search.next(options.together - 1);
    radii.insert(radii.end(), others.begin(), others.end());
  }
  while (true) {
    if (!go_on()) return std::nullopt;
    const std::vector<double> found = certify(radii);
    if (radii.front() == 0 && !(found.front() > 0)) {
      return Radius{.not_certified = 0, .tried = std::ssize(radii)};
    }
    for (size_t i = 0; i < radii.size(); ++i) search.add(radii[i], found[i]);
    if (search.is_found()) return search.known();
    radii = search.next(options.together);
  }
}

}  // namespace seqfuse::certify
