// Training data of predictors: databases, CSV files, and lines with a scheme and its time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tuning/measurement.h"
#include "tuning/predictor.h"

namespace seqfuse::tuning {

// Which settings are meant; what is not set does not matter.
struct Selection {
  std::optional<std::string> model, mask, dtype;
  std::optional<int64_t> batch, seq;

  bool takes(const Setting& setting) const;
};

struct TrainingData {
  std::vector<Example> examples;
  bool legal_forms = true;       // schemes are legal forms; false: as others wrote them
  std::optional<Origin> origin;  // of all examples; none: of lines, which do not say
  int64_t without_time = 0;      // measurements left out: wrong, failed, timeout
  int64_t of_other_origins = 0;  // and those of another card, driver or version
};

// Whether a file is a database of `seqfuse tune`, also a damaged one if its name ends in .db, or a CSV file
// of measurements.
bool holds_measurements(const std::string& file);

// All that such a file has. Throws as Database and read_csv do.
std::vector<Measurement> read_measurements(const std::string& file);

// Lines of a scheme, white space and milliseconds: "1111100011001100   54.524". The scheme: 16
// characters 0 or 1, or a number from 0 to 65535. Blank lines and lines that begin with # are skipped.
// Throws DataError that names file and line; IoError.
std::vector<Example> read_scheme_lines(const std::filesystem::path& file, const Setting& setting);

// The whole-program measurements that were ok, of the selected settings and of one origin: that of the
// last one on that card; card "": on any. Of a scheme that was measured several times in a setting, the
// first: later ones may have other tile parameters.
TrainingData examples_of(std::span<const Measurement> measurements, const Selection& selection,
                         const std::string& card);

// A BERT-base of `batch` and `seq` in float32 under a mask, which lines of schemes do not name. Throws
// UsageError for a mask that does not exist.
Setting setting_of_lines(int64_t batch, int64_t seq, const std::string& mask);

// Share of pairs that a mask allows: rules of masks/sequence_mask.h joined by '+'. Throws UsageError.
double density_of(const std::string& mask, int64_t seq);

// All of a file, whatever kind it is. FILE@BATCH,SEQ,MASK: lines, of that setting; else lines are of
// what the selection says, by default batch 1, length 128, no mask. Throws as the above, and DataError if
// nothing is selected.
TrainingData read_training_file(const std::string& file, const Selection& selection,
                                const std::string& card);

// Reads several files. Throws UsageError for origins that differ.
TrainingData read_training_files(std::span<const std::string> files, const Selection& selection,
                                 const std::string& card);

}  // namespace seqfuse::tuning
