// Recommendations as Parquet, for make_writer(): user and item are text, rank is int32, scores are
// float64, title is text.
#pragma once

#include <filesystem>
#include <memory>

#include "serving/batch/recommendation_writer.h"

namespace seqfuse::serving {

// Throws IoError.
std::unique_ptr<RecommendationWriter> make_parquet_writer(const std::filesystem::path& file,
                                                          const OutputTable& table);

}  // namespace seqfuse::serving
