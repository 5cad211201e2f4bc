// Style sheet and script of the page.
#pragma once

namespace seqfuse::report {

// Light and dark by the reader's setting; the six colours are Okabe and Ito's, which people with
// any colour vision can tell apart.
extern const char* const kStyle;

// Shows the values under the pointer. The page is complete without it.
extern const char* const kScript;

}  // namespace seqfuse::report
