// How long tests wait.
#pragma once

namespace seqfuse {

// Seconds in which whatever takes at most a few ends on a busy machine of one core, too. What ended
// it is asserted by what it says, not by the clock.
inline constexpr double kPatience = 60;

}  // namespace seqfuse
