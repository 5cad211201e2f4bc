// Maps safetensors files for reading, and writes them from views, without a tensor library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/safetensors_header.h"

namespace seqfuse::io {

// A tensor's description and a non-owning view of its bytes, row-major and little-endian.
struct TensorView {
  std::string dtype;           // a dtype known to safetensors_item_size
  std::vector<int64_t> shape;  // empty: a scalar
  std::span<const std::byte> bytes;
};

// One file, mapped read-only: pages are read on first use. Views into it are valid for its
// lifetime. Truncating the file while it is mapped kills the process (SIGBUS).
class SafetensorsFile {
 public:
  // Checks every offset of the header against the file's size. Throws IoError, or DataError naming
  // the file.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const SafetensorsHeader& header() const { return header_; }
  // In the order of their bytes in the file, so that reading them in turn is sequential.
  const std::vector<std::pair<std::string, TensorView>>& tensors() const { return tensors_; }

 private:
  std::shared_ptr<const std::byte> mapping_;
  SafetensorsHeader header_;
  std::vector<std::pair<std::string, TensorView>> tensors_;
};

// All tensors of a model in one or several files.
class SafetensorsModel {
 public:
  // path: a .safetensors file, an .index.json ({"weight_map": {"NAME": "FILE"}}, files next to it),
  // or a directory with model.safetensors or model.safetensors.index.json. Throws IoError, or
  // DataError naming the index and the file: a missing or damaged file, a tensor that its file
  // lacks (with what it contains), a file outside the directory.
  explicit SafetensorsModel(const std::filesystem::path& path);

  const std::map<std::string, TensorView>& tensors() const { return tensors_; }

 private:
  void add_file(const std::filesystem::path& path);
  void add_index(const std::filesystem::path& path);

  std::map<std::filesystem::path, std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, TensorView> tensors_;
};

// Writes the tensors in order of descending element size, so that each is aligned to its elements.
// Not atomic: write to a temporary name and rename. Throws IoError, or Error if a tensor's bytes do
// not match its shape.
void write_safetensors(const std::filesystem::path& path,
                       const std::map<std::string, TensorView>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace seqfuse::io
