// Style sheet and script of the page.
#pragma once

namespace seqfuse::report {

// Follows the reader's light or dark setting. The six colours are those of Okabe and Ito, which are
// safe for colour-blind readers.
extern const char* const kStyle;

// Shows the values under the pointer. The page is usable without it.
extern const char* const kScript;

}  // namespace seqfuse::report
