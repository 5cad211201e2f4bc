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

// By the ending of the file's name. Throws UsageError where it is neither .parquet nor .npy.
VectorFormat vector_format(const std::filesystem::path& file);

// The ids of FILE.npy: FILE.npy.json.
std::filesystem::path ids_path(const std::filesystem::path& npy_file);

// What a file says of its vectors.
struct VectorFileInfo {
  std::string vectors;       // "items", "users" or "sentences"
  std::string run;           // sentences: the model's folder
  int64_t step = 0;          // of the checkpoint; not of sentences
  std::string dataset_hash;  // not of sentences
  int64_t count = 0, width = 0;
  bool titles = false;     // Parquet: with a column of titles
  std::string pooling;     // of sentences
  bool normalized = true;  // L2
};

// Some of the vectors, in order.
struct VectorBlock {
  std::span<const std::string> ids;     // [n]
  std::span<const std::string> titles;  // [n], or empty without titles
  std::span<const float> values;        // [n * width], row by row
};
using AddVectors = std::function<void(const VectorBlock&)>;

// produce(add) gives info.count vectors to add, block after block; memory does not grow with their
// number, except for the ids of .npy. The files appear when all is written, in place of those that were
// there; of FILE.npy and FILE.npy.json the former first, right before the other. Exceptions of produce
// pass. Throws IoError (disk full, no such folder, a folder in place of a file), Error where their number
// is not info.count.
void write_vectors(const std::filesystem::path& file, const VectorFileInfo& info,
                   const std::function<void(const AddVectors&)>& produce);

}  // namespace seqfuse::data
