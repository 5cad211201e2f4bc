// Times of schemes by a known function, as if they had been measured.
#pragma once

#include <cmath>
#include <vector>

#include "base/random.h"
#include "fusion/legality.h"
#include "tuning/features.h"
#include "tuning/predictor.h"

namespace seqfuse {

inline tuning::Setting bert_setting(int64_t batch, int64_t seq, const std::string& mask,
                                    double density) {
  return {.model = "bert-base",
          .hidden = 768,
          .heads = 12,
          .inner = 3072,
          .layers = 12,
          .batch = batch,
          .seq = seq,
          .mask = mask,
          .mask_density = density,
          .dtype = "float16"};
}

inline std::vector<fusion::Scheme> legal_schemes() {
  std::vector<fusion::Scheme> result;
  for (int64_t number = fusion::kFirstListed; number <= fusion::kLastListed; ++number) {
    const auto scheme = fusion::Scheme::from_number(number);
    if (fusion::check(scheme).holds()) result.push_back(scheme);
  }
  return result;
}

// Traffic and launches of all layers, with products and, if it is not one segment, dense attention; a
// GEMM-GEMM segment is slow. noise: the relative deviation.
inline double made_up_milliseconds(const tuning::Setting& setting, const fusion::Scheme& scheme,
                                   double noise, Random& random) {
  const bool by_hand = scheme.has({2, 6});
  const double rows = static_cast<double>(setting.batch * setting.seq);
  const double products = 24 * rows * 768 * 768;
  const double attention =
      4 * rows * 768 * static_cast<double>(setting.seq) * (by_hand ? setting.mask_density : 1);
  double ms = (products + attention) / 3e11 + tuning::value_bytes(setting, scheme) / 2.5e9 +
              .004 * static_cast<double>(scheme.segments().size());
  if (!scheme.cut_after(10) && !scheme.cut_after(11)) ms += products / 1e11;  // gemm2 to gemm3
  return 12 * ms * (1 + noise * random.normal());
}

inline std::vector<tuning::Example> made_up_examples(const std::vector<tuning::Setting>& settings,
                                                     double noise, uint64_t seed) {
  Random random(seed);
  std::vector<tuning::Example> examples;
  for (const tuning::Setting& setting : settings) {
    for (const fusion::Scheme& scheme : legal_schemes())
      examples.push_back({setting, scheme, made_up_milliseconds(setting, scheme, noise, random)});
  }
  return examples;
}

inline tuning::Measurement measured(const tuning::Example& example) {
  tuning::Measurement m;
  m.setting = example.setting;
  m.scheme = fusion::program_of(example.scheme).number();
  m.milliseconds = example.milliseconds;
  m.origin = {"NVIDIA H200", "580.95", "0.1.0"};
  m.date = "2026-11-30T22:05:00Z";
  return m;
}

}  // namespace seqfuse
