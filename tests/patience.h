// Time limits of tests.
#pragma once

namespace seqfuse {

// Seconds in which anything that normally takes a few seconds ends even on a busy single-core
// machine. Tests check why something ended by its message, not by the clock.
inline constexpr double kPatience = 60;

}  // namespace seqfuse
