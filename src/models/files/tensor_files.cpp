#include "models/files/tensor_files.h"

#include <algorithm>

#include "base/error.h"

namespace seqfuse::models {
namespace fs = std::filesystem;
namespace {

std::string source_of(const fs::path& directory) {
  std::error_code ignored;
  const fs::path index = directory / "model.safetensors.index.json";
  const fs::path single = directory / "model.safetensors";
  return (fs::exists(single, ignored) || !fs::exists(index, ignored) ? single : index).string();
}

}  // namespace

TensorFiles::TensorFiles(const fs::path& directory)
    : source_(source_of(directory)), files_(directory) {}

TensorMap TensorFiles::tensors() const {
  TensorMap tensors;
  for (const auto& [name, view] : files_.tensors()) {
    // const_cast: the mapping is read-only and this tensor is never written.
    tensors[name] = at::from_blob(const_cast<std::byte*>(view.bytes.data()), view.shape,
                                  at::dtype(torch_dtype(name, view.dtype)));
  }
  return tensors;
}

at::ScalarType TensorFiles::dtype_of(std::string_view ending) const {
  for (const auto& [name, view] : files_.tensors()) {
    if (!name.ends_with(ending)) continue;
    const at::ScalarType dtype = torch_dtype(name, view.dtype);
    if (at::isFloatingType(dtype)) return dtype;
  }
  return at::kFloat;
}

bool all_finite(const at::Tensor& tensor) {
  constexpr int64_t kBlock = 1 << 22;
  const at::Tensor flat = tensor.reshape({-1});
  for (int64_t begin = 0; begin < flat.numel(); begin += kBlock) {
    const at::Tensor block = flat.narrow(0, begin, std::min(kBlock, flat.numel() - begin));
    if (!at::isfinite(block).all().item<bool>()) return false;
  }
  return true;
}

}  // namespace seqfuse::models
