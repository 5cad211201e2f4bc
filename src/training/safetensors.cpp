// save_safetensors and load_safetensors of checkpoint.h.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "training/checkpoint.h"
#include "training/safetensors_header.h"

namespace seqfuse::training {
namespace fs = std::filesystem;
namespace {

constexpr std::pair<const char*, torch::ScalarType> kDtypes[] = {
    {"F64", torch::kDouble}, {"I64", torch::kLong}, {"F32", torch::kFloat},
    {"I32", torch::kInt},    {"F16", torch::kHalf}, {"BF16", torch::kBFloat16},
    {"I16", torch::kShort},  {"I8", torch::kChar},  {"U8", torch::kByte},
    {"BOOL", torch::kBool}};

const char* dtype_name(torch::ScalarType dtype, const std::string& tensor) {
  for (const auto& [name, type] : kDtypes) {
    if (type == dtype) return name;
  }
  throw_error("tensor {} has dtype {}, which a checkpoint cannot hold", tensor, toString(dtype));
}

torch::ScalarType dtype_of(const std::string& name) {
  return std::find_if(std::begin(kDtypes), std::end(kDtypes),
                      [&](const auto& pair) { return pair.first == name; })
      ->second;
}

class File {
 public:
  File(const fs::path& path, const char* mode)
      : path_(path), file_(std::fopen(path.c_str(), mode)) {
    if (!file_) throw_errno(fmt::format("cannot open {}", path.string()));
  }
  void write(const void* data, size_t bytes) {
    if (bytes == 0) return;  // data may be null then
    if (std::fwrite(data, 1, bytes, file_.get()) != bytes) {
      throw_errno(fmt::format("cannot write {}", path_.string()));
    }
  }
  void close() {
    if (std::fclose(file_.release()) != 0)
      throw_errno(fmt::format("cannot write {}", path_.string()));
  }
  void read(void* data, size_t bytes) {
    if (bytes == 0) return;
    if (std::fread(data, 1, bytes, file_.get()) != bytes) {
      throw_error<DataError>("{}: the file ends early, or cannot be read", path_.string());
    }
  }

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  fs::path path_;
  std::unique_ptr<std::FILE, Closer> file_;
};

}  // namespace

void save_safetensors(const fs::path& path, const TensorMap& tensors,
                      const std::map<std::string, std::string>& metadata) {
  // Wide elements first, so that every tensor is aligned to its element's size.
  std::vector<std::pair<std::string, torch::Tensor>> order;
  for (const auto& [name, tensor] : tensors) {
    order.emplace_back(name, tensor.detach().to(torch::kCPU).contiguous());
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.second.element_size() > b.second.element_size();
  });
  SafetensorsHeader header{.tensors = {}, .metadata = metadata};
  uint64_t offset = 0;
  for (const auto& [name, tensor] : order) {
    header.tensors[name] = {.dtype = dtype_name(tensor.scalar_type(), name),
                            .shape = tensor.sizes().vec(),
                            .begin = offset,
                            .end = offset + tensor.nbytes()};
    offset += tensor.nbytes();
  }
  File file(path, "wb");
  const std::string text = format_safetensors_header(header);
  file.write(text.data(), text.size());
  for (const auto& [name, tensor] : order) file.write(tensor.const_data_ptr(), tensor.nbytes());
  file.close();
}

TensorMap load_safetensors(const fs::path& path) {
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  if (error) throw_error<DataError>("{}: {}", path.string(), error.message());
  const std::string name = path.string();
  File file(path, "rb");
  std::string length(std::min<uint64_t>(size, kSafetensorsLengthBytes), '\0');
  file.read(length.data(), length.size());
  std::string text(safetensors_json_length(length, size, name), '\0');
  file.read(text.data(), text.size());
  const SafetensorsHeader header =
      parse_safetensors_header(text, size - kSafetensorsLengthBytes - text.size(), name);

  // In the order of the file: the entries cover the data without gaps, so reading is sequential.
  std::vector<std::pair<std::string, SafetensorsEntry>> order(header.tensors.begin(),
                                                              header.tensors.end());
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.begin, a.second.end) < std::pair(b.second.begin, b.second.end);
  });
  TensorMap tensors;
  for (const auto& [tensor_name, entry] : order) {
    const torch::Tensor tensor = torch::empty(entry.shape, torch::dtype(dtype_of(entry.dtype)));
    file.read(tensor.mutable_data_ptr(), tensor.nbytes());
    tensors[tensor_name] = tensor;
  }
  return tensors;
}

}  // namespace seqfuse::training
