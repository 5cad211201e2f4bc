#include "models/files/tensor_map.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "io/safetensors.h"

namespace seqfuse::models {
namespace fs = std::filesystem;
namespace {

constexpr std::pair<const char*, torch::ScalarType> kTensorDtypes[] = {
    {"F64", torch::kDouble}, {"I64", torch::kLong}, {"F32", torch::kFloat},
    {"I32", torch::kInt},    {"F16", torch::kHalf}, {"BF16", torch::kBFloat16},
    {"I16", torch::kShort},  {"I8", torch::kChar},  {"U8", torch::kByte},
    {"BOOL", torch::kBool}};

const char* dtype_name(torch::ScalarType dtype, const std::string& tensor) {
  for (const auto& [name, type] : kTensorDtypes) {
    if (type == dtype) return name;
  }
  throw_error("tensor {} has dtype {}, which a safetensors file cannot hold", tensor,
              toString(dtype));
}

// Reads a file from its beginning, and hashes what it has read.
class TensorReader {
 public:
  TensorReader(const fs::path& path, bool hashed)
      : path_(path), file_(std::fopen(path.c_str(), "rb"), std::fclose), hashed_(hashed) {
    if (!file_) throw_errno(fmt::format("cannot open {}", path.string()));
    std::setvbuf(file_.get(), nullptr, _IONBF, 0);  // straight into the tensors
  }

  void read(void* to, size_t bytes) {
    constexpr size_t kPiece = size_t{4} << 20;  // hashed while it is in the processor's cache
    for (char* at = static_cast<char*>(to); bytes > 0;) {
      const size_t piece = std::min(bytes, kPiece);
      if (std::fread(at, 1, piece, file_.get()) != piece) {
        if (std::ferror(file_.get())) throw_errno(fmt::format("cannot read {}", path_.string()));
        throw_error<DataError>("{}: the file ends before its tensors do", path_.string());
      }
      if (hashed_) hasher_.update({at, piece});
      at += piece;
      bytes -= piece;
    }
  }
  std::string hash() const { return hasher_.text(); }

 private:
  fs::path path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  bool hashed_;
  Hasher hasher_;
};

}  // namespace

at::ScalarType torch_dtype(const std::string& tensor, std::string_view dtype) {
  for (const auto& [name, type] : kTensorDtypes) {
    if (name == dtype) return type;
  }
  throw_error("{} is {}, a dtype without a counterpart in torch", tensor, dtype);
}

void save_tensors(const fs::path& file, const TensorMap& tensors,
                  const std::map<std::string, std::string>& metadata) {
  TensorMap on_host;  // owns the memory of the views
  std::map<std::string, io::TensorView> views;
  for (const auto& [name, given] : tensors) {
    const torch::Tensor& tensor = on_host[name] = given.detach().to(torch::kCPU).contiguous();
    views[name] = {
        dtype_name(tensor.scalar_type(), name), tensor.sizes().vec(),
        std::span(static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes())};
  }
  io::write_safetensors(file, views, metadata);
}

TensorMap load_tensors(const fs::path& file, std::string* hash) {
  std::error_code error;
  const uintmax_t size = fs::file_size(file, error);
  if (error) throw_error<DataError>("{} does not exist", file.string());
  TensorReader reader(file, hash != nullptr);
  std::string first(std::min<uintmax_t>(size, io::kSafetensorsLengthBytes), '\0');
  reader.read(first.data(), first.size());
  std::string json(io::safetensors_json_length(first, size, file.string()), '\0');
  reader.read(json.data(), json.size());
  const io::SafetensorsHeader header =
      io::parse_safetensors_header(json, size - first.size() - json.size(), file.string());
  // They follow each other without gaps.
  std::vector<std::pair<std::string, io::SafetensorsEntry>> order(header.tensors.begin(),
                                                                  header.tensors.end());
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.begin, a.second.end) < std::pair(b.second.begin, b.second.end);
  });
  TensorMap tensors;
  for (const auto& [name, entry] : order) {
    const torch::Tensor tensor =
        torch::empty(entry.shape, torch::dtype(torch_dtype(name, entry.dtype)));
    reader.read(tensor.mutable_data_ptr(), entry.end - entry.begin);
    tensors[name] = tensor;
  }
  if (hash != nullptr) *hash = reader.hash();
  return tensors;
}

}  // namespace seqfuse::models
