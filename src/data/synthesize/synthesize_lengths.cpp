#include "data/synthesize/synthesize_lengths.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/hash.h"
#include "base/random.h"

namespace seqfuse::data::synthetic {
namespace {

// Log-normal about the published median, cut at the published minimum and maximum.
constexpr Quantile kPure[] = {{0, 1},      {.01, 6},   {.05, 10.6}, {.1, 14.1},
                              {.25, 22.9}, {.5, 39},   {.75, 66.5}, {.9, 107.7},
                              {.95, 144},  {.99, 247}, {.999, 449}, {1, 910}};

// The shape of 27K, stretched to the published minimum, median, mean and maximum.
constexpr Quantile k1k[] = {{0, 10},      {.01, 158},   {.05, 427},   {.1, 715},
                            {.2, 1324},   {.3, 1948},   {.4, 2618},   {.5, 3379},
                            {.6, 4328},   {.7, 5612},   {.8, 7480},   {.9, 11040},
                            {.95, 15200}, {.98, 22000}, {.99, 28400}, {1, 49332}};

// Measured on the logs of 27,285 users.
constexpr Quantile k27k[] = {
    {0, 100},      {.001, 222},    {.005, 417}, {.01, 571},   {.02, 809},   {.05, 1393},
    {.1, 2188},    {.2, 3744},     {.3, 5252},  {.4, 6815},   {.5, 8594},   {.6, 10713},
    {.7, 13471},   {.8, 17399},    {.9, 24591}, {.95, 32594}, {.98, 44827}, {.99, 56232},
    {.995, 67437}, {.999, 115144}, {1, 228000}};

// Measured on the ratings of 6,040 users.
constexpr Quantile kMl1m[] = {{0, 20},   {.05, 23},  {.1, 27},   {.15, 32},  {.2, 38},  {.25, 44},
                              {.3, 51},  {.35, 60},  {.4, 70},   {.45, 81},  {.5, 96},  {.55, 109},
                              {.6, 126}, {.65, 148}, {.7, 173},  {.75, 208}, {.8, 253}, {.85, 309},
                              {.9, 400}, {.95, 556}, {.99, 907}, {1, 2314}};

double interpolate(std::span<const Quantile> quantiles, double share) {
  const auto above = std::ranges::lower_bound(quantiles, share, {}, &Quantile::share);
  if (above == quantiles.begin()) return above->events;
  const Quantile &low = *std::prev(above), &high = *above;
  const double t = (share - low.share) / (high.share - low.share);
  return low.events * std::pow(high.events / low.events, t);
}

}  // namespace

std::span<const Quantile> kuairand_pure_lengths() {
  return kPure;
}
std::span<const Quantile> kuairand_1k_lengths() {
  return k1k;
}
std::span<const Quantile> kuairand_27k_lengths() {
  return k27k;
}
std::span<const Quantile> ml_1m_lengths() {
  return kMl1m;
}

std::vector<int64_t> draw_lengths(std::span<const Quantile> quantiles, int64_t users, double scale,
                                  std::optional<int64_t> total, uint64_t seed) {
  std::vector<double> lengths(users);
  for (int64_t i = 0; i < users; ++i) {
    const double share = (static_cast<double>(i) + 0.5) / static_cast<double>(users);
    // Slightly above 1, so that a total can be distributed at any scale.
    lengths[i] = std::max(1.0001, scale * interpolate(quantiles, share));
  }
  Random random(seed, hash64("lengths of users"));
  random.shuffle(lengths);
  // One event each; the rest in proportion. Rounding the running sum keeps the total exact.
  const double extra =
      std::accumulate(lengths.begin(), lengths.end(), 0.0) - static_cast<double>(users);
  const double factor = total ? static_cast<double>(*total - users) / extra : 1;
  std::vector<int64_t> result(users);
  double sum = 0;
  int64_t given = 0;
  for (int64_t i = 0; i < users; ++i) {
    sum += factor * (lengths[i] - 1);
    const int64_t more = std::llround(sum) - given;
    given += more;
    result[i] = 1 + more;
  }
  return result;
}

}  // namespace seqfuse::data::synthetic
