// Axis ticks and their labels.
#pragma once

#include <string>
#include <vector>

namespace seqfuse::report {

struct Tick {
  double value = 0;
  std::string label;
};

struct Axis {
  double low = 0, high = 1;  // low < high; above 0 if logarithmic
  bool logarithmic = false;
  std::vector<Tick> ticks;  // within [low, high]

  double position(double value) const;  // 0 at low, 1 at high
};

// An axis over [low, high] with about `ticks` ticks, at steps of 1, 2 or 5 times a power of ten.
// integers: no tick between two integers.
Axis linear_axis(double low, double high, int ticks, bool integers = false);

// Ticks at powers of ten, and if those are few also at 2 and 5 times them. low > 0.
Axis logarithmic_axis(double low, double high);

// Three significant digits: 0.0403, 12.5, 357 k, 1.2 M.
std::string short_number(double value);

}  // namespace seqfuse::report
