// The features of a setting and a scheme from which the predictor computes a time.
#pragma once

#include <vector>

#include "fusion/scheme.h"
#include "tuning/measurement.h"

namespace seqfuse::tuning {

// In the order of append_features.
const std::vector<const char*>& feature_names();

// Appends the features of a scheme in a setting to a row. Sizes of the setting: 1 or more.
void append_features(const Setting& setting, const fusion::Scheme& scheme,
                     std::vector<double>& row);

// Bytes that the segments of a scheme read and write of values in one layer: not the weights, nor what
// stays inside a segment.
double value_bytes(const Setting& setting, const fusion::Scheme& scheme);

// A rough time of the setting, whatever the scheme: arithmetic and memory traffic of a GPU. Only the
// ratio of two settings matters: trees predict the factor that a scheme takes over it, since trees alone
// could not tell a length that they have not seen from the nearest one that they have.
double rough_milliseconds(const Setting& setting);

}  // namespace seqfuse::tuning
