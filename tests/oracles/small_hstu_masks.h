// Every HSTU attention mask of a few positions.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>

#include "tests/oracles/hstu_attention.h"

namespace seqfuse::oracle {

template <class Body>
void for_each_small_mask(Body&& body) {
  for (int64_t n = 1; n <= 8; ++n) {
    for (int64_t c = 0; c <= n; ++c) {
      for (int64_t t = 0; t <= n - c; ++t) {
        for (const int64_t g : {1, 2, 3}) {
          for (const int64_t w : {0, 1, 2, 4}) {
            for (const int64_t full : {0, 1, 3}) {
              for (const bool causal : {true, false}) {
                body(HstuAttentionMask{n, c, t, g, w, full, causal});
              }
            }
          }
        }
      }
    }
  }
}

inline std::string describe(const HstuAttentionMask& m) {
  std::ostringstream text;
  text << "n=" << m.keys << " c=" << m.contexts << " t=" << m.targets << " g=" << m.group_size
       << " w=" << m.window << " F=" << m.full_rows << " causal=" << m.causal;
  return text.str();
}

}  // namespace seqfuse::oracle
