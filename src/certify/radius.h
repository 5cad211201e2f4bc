// The largest radius whose margins are certified, by a search.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace seqfuse::certify {

struct SearchOptions {
  double tolerance = 1e-3;  // relative
  int64_t together = 1;     // radii that are tried at once, as a batch
  double first = 0.01, smallest = 1e-9, largest = 1e9;
};

struct Radius {
  double certified = 0;  // 0: not even the smallest one
  // The next one that was tried and could not be certified; infinity: all could, up to the largest one.
  double not_certified = 0;
  int64_t tried = 0;
};

// certify: for radii the smallest lower margins. A radius counts if its margin is above 0. Nothing if
// `go_on` returns false, which is asked before each batch.
std::optional<Radius> largest_radius(
    const std::function<std::vector<double>(const std::vector<double>&)>& certify,
    const SearchOptions& options, const std::function<bool()>& go_on);

}  // namespace seqfuse::certify
