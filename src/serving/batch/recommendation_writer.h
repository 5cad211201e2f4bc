// Recommendations as a file: a row for each item of each user, with the user's id, the rank from 1,
// the item's id, its scores and its title.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/dataset/vocabulary.h"
#include "serving/batch/batch_recommender.h"

namespace seqfuse::serving {

enum class OutputFormat { csv, jsonl, parquet };

// By the ending of the name. Throws UsageError.
OutputFormat output_format(const std::string& file);

class RecommendationWriter {
 public:
  virtual ~RecommendationWriter() = default;
  // Both throw IoError.
  virtual void add(std::span<const UserItems> users) = 0;
  virtual void close() = 0;  // completes the file
};

struct OutputTable {
  OutputFormat format;
  std::vector<std::string> score_names;
  const data::Vocabulary& vocabulary;
  std::map<std::string, std::string> about;  // metadata of a Parquet file
};

// Creates the file. Missing scores and titles are blank (CSV), left out (JSON lines) or null (Parquet).
// Throws IoError.
std::unique_ptr<RecommendationWriter> make_writer(const std::filesystem::path& file,
                                                  const OutputTable& table);

}  // namespace seqfuse::serving
