// Initial values of a row: a function of (seed, id, column), by Philox, so the same id has the same
// row in any process. On another device all but constants may differ in the last bit, since log, cos
// and fused products and sums do.
#pragma once

#include <math.h>

#include "base/philox.h"
#include "ops/kernels/common/host_device.h"

namespace seqfuse::ops::hash_table {

struct RowInit {
  enum Kind : int {
    constant,          // a
    uniform,           // in [a, b)
    normal,            // mean a, standard deviation b
    truncated_normal,  // the same, drawn again while outside [lower, upper]
  };
  Kind kind = constant;
  double a = 0, b = 0;
  double lower = 0, upper = 0;  // lower <= a <= upper, lower < upper
  uint64_t seed = 0;
};

// Two words as a standard normal number (Box and Muller).
SEQFUSE_HOST_DEVICE double normal_number(uint32_t x, uint32_t y) {
  // Not seqfuse::log, the namespace. x = 2^32 - 1: 0.
  const double radius = sqrt(-2 * ::log((x + 1.0) * 0x1p-32));
  return radius * cos(6.283185307179586 * 0x1p-32 * y);
}

SEQFUSE_HOST_DEVICE float initial_value(const RowInit& init, int64_t id, int64_t column) {
  if (init.kind == RowInit::constant) return static_cast<float>(init.a);
  const Philox random{init.seed, static_cast<uint64_t>(id)};
  const auto counter = static_cast<uint64_t>(column);
  if (init.kind == RowInit::uniform) {
    const PhiloxWords words = random(counter / 4);
    return static_cast<float>(init.a + (init.b - init.a) * Philox::unit(words[counter % 4]));
  }
  if (init.kind == RowInit::normal) {
    const PhiloxWords words = random(counter / 2);
    const int first = static_cast<int>(counter % 2) * 2;
    return static_cast<float>(init.a + init.b * normal_number(words[first], words[first + 1]));
  }
  // Bounds that cut off almost everything end in a value at a bound.
  double value = init.a;
  for (uint64_t attempt = 0; attempt < 64; ++attempt) {
    const PhiloxWords words = random(counter + (attempt << 32));
    for (int first = 0; first < 4; first += 2) {
      value = init.a + init.b * normal_number(words[first], words[first + 1]);
      if (value >= init.lower && value <= init.upper) return static_cast<float>(value);
    }
  }
  return static_cast<float>(value < init.lower ? init.lower : init.upper);
}

}  // namespace seqfuse::ops::hash_table
