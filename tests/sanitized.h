// Whether this is a build of the asan or tsan preset.
#pragma once

namespace seqfuse {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace seqfuse
