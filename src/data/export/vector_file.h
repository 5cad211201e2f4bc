// Vectors with their raw ids, as files for other programs: Parquet, or NumPy's .npy with the ids in
// a JSON file next to it. docs/export.md describes both.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

namespace seqfuse::data {

enum class VectorFormat { parquet, npy };

// The format that the file's ending names. Throws UsageError if it is neither .parquet nor .npy.
VectorFormat vector_format(const std::filesystem::path& file);

// The file with the ids of FILE.npy: FILE.npy.json.
std::filesystem::path ids_path(const std::filesystem::path& npy_file);

// Describes the vectors of a file; stored in it.
struct VectorFileInfo {
  std::string vectors;       // "items", "users" or "sentences"
  std::string run;           // the run or, for sentences, the model's folder
  int64_t step = 0;          // of the checkpoint; not used for sentences
  std::string dataset_hash;  // not used for sentences
  int64_t count = 0, width = 0;
  bool titles = false;     // Parquet: add a column of titles
  std::string pooling;     // sentences only
  bool normalized = true;  // L2
};

// Consecutive vectors.
struct VectorBlock {
  std::span<const std::string> ids;     // [n]
  std::span<const std::string> titles;  // [n], or empty without titles
  std::span<const float> values;        // [n * width], row by row
};
using AddVectors = std::function<void(const VectorBlock&)>;

// Calls produce(add), which must pass info.count vectors to add, block by block. Only the ids of .npy
// stay in memory. The files appear when all is written, and replace earlier ones; FILE.npy appears right
// before FILE.npy.json. Passes on exceptions of produce. Throws IoError (disk full, no such folder, a
// folder in place of the file), and Error if the number of vectors is not info.count.
void write_vectors(const std::filesystem::path& file, const VectorFileInfo& info,
                   const std::function<void(const AddVectors&)>& produce);

}  // namespace seqfuse::data
