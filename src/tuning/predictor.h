// Predicts how long a scheme takes, from measured ones, by features of the shape, the mask's density and the
// scheme (features.h): gradient-boosted trees; below 500 examples on what a ridge regression, which few
// examples suffice for, leaves. Deterministic: the same examples in the
// same order give the same predictor, bit for bit, on any number of threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fusion/scheme.h"
#include "tuning/boosted_trees.h"
#include "tuning/measurement.h"
#include "tuning/ridge.h"

namespace seqfuse::tuning {

struct Example {
  Setting setting;
  fusion::Scheme scheme;
  double milliseconds = 0;  // finite, above 0
};

// A setting that a regressor was trained on.
struct KnownSetting {
  Setting setting;
  int64_t examples = 0;
  double median_milliseconds = 0;  // of its examples: faster ones are fast
};

class Regressor {
 public:
  // An untrained one.
  Regressor() = default;
  explicit Regressor(const BoostingOptions& options) : options_(options) {}

  // Replaces what it knew. Throws DataError unless there are two examples or more, with two
  // different times; Error for a time that is not finite and above 0.
  void fit(std::span<const Example> examples);
  bool trained() const { return !known_.empty(); }

  // Milliseconds; above 0. Any setting. Throws Error if untrained.
  double predict(const Setting& setting, const fusion::Scheme& scheme) const;
  std::vector<double> predict(const Setting& setting,
                              std::span<const fusion::Scheme> schemes) const;

  // Predicted times below this are fast: the median of the setting's examples; for a setting that it
  // was not trained on, the median of what it predicts for all legal programs.
  double fast_below(const Setting& setting) const;

  const std::vector<KnownSetting>& known() const { return known_; }

  // Where the training data came from; `predict` reports it. The caller sets it after fit().
  struct Provenance {
    bool legal_forms = true;  // examples were legal forms, not schemes as others wrote them
    std::optional<Origin> origin;
    std::string date;
  };
  Provenance provenance;

  // A JSON file, written atomically. load() gives the same predictions, bit for bit. save() throws
  // IoError; load() throws IoError, or DataError that names the file and what is wrong with it.
  void save(const std::filesystem::path& file) const;
  static Regressor load(const std::filesystem::path& file);

 private:
  BoostingOptions options_;
  // Their sum is log(milliseconds / rough_milliseconds(setting)).
  Ridge ridge_;
  BoostedTrees trees_;
  std::vector<KnownSetting> known_;
};

}  // namespace seqfuse::tuning
