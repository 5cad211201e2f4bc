// The vectors of a retrieval run: as files for search indexes, and compared with each other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "serving/recommendations.h"
#include "serving/trained_run.h"

namespace seqfuse::serving {

enum class VectorsOf { items, users };

struct ExportSummary {
  int64_t count = 0, width = 0;
  int64_t without_events = 0;  // users that have no vector
};

// Writes float32 vectors with raw ids (data/export/vector_file.h), L2-normalised as the model
// scores them: the score of an item for a user is the dot product of their vectors.
//   items: rows of Predictor::catalogue(), without the unknown item
//   users: Predictor::queries() of all their events, as `recommend --user`: asked one typical gap
//     after the last one; those without events are left out. Needs run.dataset.
// Throws UsageError for a ranking run or another ending than .parquet and .npy, DataError naming the
// first id whose vector is not finite, IoError. Where it throws, the file is as it was.
ExportSummary export_vectors(const TrainedRun& run, VectorsOf what,
                             const std::filesystem::path& file, bool show_progress);

// The top_k items whose vectors are closest to that of the item, which is not among them; "cosine".
// Throws UsageError for a ranking run or an unknown id, DataError where the vector is not finite.
std::vector<RankedItem> similar_items(const TrainedRun& run, std::string_view id, int64_t top_k);

}  // namespace seqfuse::serving
