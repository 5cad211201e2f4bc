#include "report/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace seqfuse::report {
namespace {

struct Unit {
  double scale;
  const char* suffix;
};

Unit unit_of(double magnitude) {
  if (magnitude >= 1e9) return {1e9, " G"};
  if (magnitude >= 1e6) return {1e6, " M"};
  if (magnitude >= 1e4) return {1e3, " k"};
  if (magnitude > 0 && magnitude < 1e-3) return {1e-6, "e-6"};
  return {1, ""};
}

double round_step(double wanted) {
  const double power = std::pow(10.0, std::floor(std::log10(wanted)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (wanted <= factor * power * (1 + 1e-9)) return factor * power;
  }
  return 10 * power;
}

}  // namespace

double Axis::position(double value) const {
  if (!logarithmic) return (value - low) / (high - low);
  return std::log(value / low) / std::log(high / low);
}

Axis linear_axis(double low, double high, int ticks, bool integers) {
  if (low == high) {  // a single value is centred
    const double around = low == 0 ? 1 : std::abs(low) / 10;
    low -= around;
    high += around;
  }
  double step = round_step((high - low) / ticks);
  if (integers) step = std::max(step, 1.0);
  const Unit unit = unit_of(std::max(std::abs(low), std::abs(high)));
  const int decimals =
      std::max(0, static_cast<int>(-std::floor(std::log10(step / unit.scale) + 1e-9)));
  Axis axis{low, high, false, {}};
  const double slack = step * 1e-6;
  for (double i = std::ceil((low - slack) / step); i * step <= high + slack; ++i) {
    const double value = i * step;
    std::string label = fmt::format("{:.{}f}", value / unit.scale, decimals);
    axis.ticks.push_back({value, i == 0 ? "0" : label + unit.suffix});
  }
  return axis;
}

Axis logarithmic_axis(double low, double high) {
  if (high <= low) high = low * 10;
  Axis axis{low, high, true, {}};
  const bool few = high / low < 100;
  for (double power = std::pow(10.0, std::floor(std::log10(low))); power <= high; power *= 10) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor > 1 && !few) continue;
      const double value = factor * power;
      if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) {
        axis.ticks.push_back({value, short_number(value)});
      }
    }
  }
  return axis;
}

std::string short_number(double value) {
  const Unit unit = unit_of(std::abs(value));
  const double scaled = value / unit.scale;
  // %g would switch to exponents; 1234 stays 1234.
  if (std::abs(scaled) >= 1000) return fmt::format("{:.0f}{}", scaled, unit.suffix);
  return fmt::format("{:.3g}{}", scaled, unit.suffix);
}

}  // namespace seqfuse::report
