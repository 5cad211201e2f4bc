#include "base/random.h"

#include <cmath>
#include <numbers>

namespace seqfuse {

double Random::normal() {  // Box-Muller; uses one of the pair
  const double radius = std::sqrt(-2 * std::log(1 - unit()));
  return radius * std::cos(2 * std::numbers::pi * unit());
}

}  // namespace seqfuse
