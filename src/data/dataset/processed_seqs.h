// processed_seqs.csv: one row per user; items, actions and times as lists "[924, 919]". `--format
// processed-seqs` reads it.
#pragma once

#include <filesystem>

#include "data/dataset/dataset.h"

namespace seqfuse::data {

// Columns: user_id (raw id), context features (indices, blank if unknown), then movie_id, rating,
// unix_timestamp for MovieLens; video_id, action_weights, time_ms for KuaiRand; item_id, action,
// timestamp for others. Items are raw ids, actions are labels. Throws IoError.
void write_processed_seqs(const Dataset& dataset, const std::filesystem::path& file);

}  // namespace seqfuse::data
