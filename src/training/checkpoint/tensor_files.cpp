#include "training/checkpoint/tensor_files.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "io/safetensors.h"

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

}  // namespace

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

TensorMap load_tensors(const fs::path& file) {
  std::error_code error;
  if (!fs::exists(file, error)) throw_error<DataError>("{} does not exist", file.string());
  const io::SafetensorsFile mapped(file);
  TensorMap tensors;
  for (const auto& [name, view] : mapped.tensors()) {
    const torch::Tensor tensor = torch::empty(view.shape, torch::dtype(dtype_of(view.dtype)));
    if (!view.bytes.empty()) {
      std::memcpy(tensor.mutable_data_ptr(), view.bytes.data(), view.bytes.size());
    }
    tensors[name] = tensor;
  }
  return tensors;
}

}  // namespace seqfuse::training
