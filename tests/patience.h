// Time limits of tests.
#pragma once

namespace seqfuse {

// Seconds within which anything that normally takes a few seconds ends even on a busy machine with
// one core. Tests check the reason for an end by its message, not by the clock.
inline constexpr double kPatience = 60;

}  // namespace seqfuse
