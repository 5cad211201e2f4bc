// "Did you mean": the nearest of a set of names by edit distance.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace seqfuse {

// The candidate with the smallest Damerau-Levenshtein distance to name, ignoring case and treating
// '-' as '_'; empty if none is within max(2, length / 3).
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

// " (did you mean 'x'?)", or "" if nothing is near.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

}  // namespace seqfuse
