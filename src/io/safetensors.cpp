#include "io/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/names.h"

namespace seqfuse::io {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kIndexEnding = ".index.json";

struct Closer {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

struct Mapping {
  std::shared_ptr<const std::byte> data;  // null for an empty file
  uint64_t size = 0;
};

Mapping map_file(const fs::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw_errno(fmt::format("cannot open {}", path.string()));
  const off_t end = lseek(file, 0, SEEK_END);
  const auto size = static_cast<size_t>(std::max<off_t>(end, 0));
  void* mapped = size > 0 ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0) : nullptr;
  const int error = errno;
  close(file);
  errno = error;
  if (end < 0 || mapped == MAP_FAILED) throw_errno(fmt::format("cannot map {}", path.string()));
  if (mapped == nullptr) return {};
  return {{static_cast<const std::byte*>(mapped),
           [size](const std::byte* data) { munmap(const_cast<std::byte*>(data), size); }},
          size};
}

uint64_t bytes_of(const TensorView& tensor) {
  auto bytes = static_cast<uint64_t>(safetensors_item_size(tensor.dtype));
  for (const int64_t size : tensor.shape) bytes *= static_cast<uint64_t>(size);
  return bytes;
}

// The first few names: "a, b, c, ...".
std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  const auto shown = names.begin() + static_cast<ptrdiff_t>(std::min(kShown, names.size()));
  return fmt::format("{}{}", fmt::join(names.begin(), shown, ", "),
                     names.size() > kShown ? ", ..." : "");
}

}  // namespace

SafetensorsFile::SafetensorsFile(const fs::path& path) {
  const std::string name = path.string();
  const Mapping mapping = map_file(path);
  mapping_ = mapping.data;
  const std::string_view content(reinterpret_cast<const char*>(mapping_.get()), mapping.size);
  const uint64_t length =
      safetensors_json_length(content.substr(0, kSafetensorsLengthBytes), mapping.size, name);
  const uint64_t begin = kSafetensorsLengthBytes + length;
  header_ = parse_safetensors_header(content.substr(kSafetensorsLengthBytes, length),
                                     mapping.size - begin, name);
  for (const auto& [tensor, entry] : header_.tensors) {
    tensors_.emplace_back(
        tensor, TensorView{entry.dtype,
                           entry.shape,
                           {mapping_.get() + begin + entry.begin, entry.end - entry.begin}});
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.bytes.data(), a.second.bytes.size()) <
           std::pair(b.second.bytes.data(), b.second.bytes.size());
  });
}

SafetensorsModel::SafetensorsModel(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    path.filename().string().ends_with(kIndexEnding) ? add_index(path) : add_file(path);
    return;
  }
  const fs::path index = path / "model.safetensors.index.json", single = path / "model.safetensors";
  if (fs::exists(single, ignored)) {
    add_file(single);
  } else if (fs::exists(index, ignored)) {
    add_index(index);
  } else {
    throw_error<DataError>("{} has neither model.safetensors nor model.safetensors.index.json",
                           path.string());
  }
}

void SafetensorsModel::add_file(const fs::path& path) {
  const auto& file = files_[path] = std::make_unique<SafetensorsFile>(path);
  for (const auto& [name, tensor] : file->tensors()) tensors_.emplace(name, tensor);
}

void SafetensorsModel::add_index(const fs::path& path) {
  using nlohmann::json;
  const json index = json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (map == index.end() || !map->is_object()) {
    throw_error<DataError>("{}: expected a JSON object with \"weight_map\"", path.string());
  }
  for (const auto& [name, value] : map->items()) {
    const fs::path part = value.is_string() ? fs::path(value.get<std::string>()) : fs::path();
    if (part.empty() || part.has_parent_path()) {
      throw_error<DataError>("{}: tensor {} is in {}: expected the name of a file beside the index",
                             path.string(), name, value.dump());
    }
    auto& file = files_[path.parent_path() / part];
    try {
      if (!file) file = std::make_unique<SafetensorsFile>(path.parent_path() / part);
    } catch (const Error& error) {
      throw_error<DataError>("{} names {} for the tensor {} and others: {}", path.string(),
                             part.string(), name, error.what());
    }
    const auto& tensors = file->tensors();
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const auto& tensor) { return tensor.first == name; });
    if (found == tensors.end()) {
      std::vector<std::string> names;
      for (const auto& [held, view] : tensors) names.push_back(held);
      throw_error<DataError>(
          "{} names the tensor {} in {}, which does not have it{}; its {} tensors are {}",
          path.string(), name, part.string(), did_you_mean(name, names), names.size(),
          some_of(names));
    }
    tensors_.emplace(name, found->second);
  }
}

void write_safetensors(const fs::path& path, const std::map<std::string, TensorView>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<std::pair<std::string, const TensorView*>> order;
  for (const auto& [name, tensor] : tensors) {
    SEQFUSE_CHECK(
        tensor.bytes.size() == bytes_of(tensor) && safetensors_item_size(tensor.dtype) > 0,
        "tensor {} of dtype {} has {} bytes, its shape needs {}", name, tensor.dtype,
        tensor.bytes.size(), bytes_of(tensor));
    order.emplace_back(name, &tensor);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return safetensors_item_size(a.second->dtype) > safetensors_item_size(b.second->dtype);
  });
  SafetensorsHeader header{.tensors = {}, .metadata = metadata};
  uint64_t offset = 0;
  for (const auto& [name, tensor] : order) {
    const uint64_t end = offset + tensor->bytes.size();
    header.tensors[name] = {
        .dtype = tensor->dtype, .shape = tensor->shape, .begin = offset, .end = end};
    offset = end;
  }
  const auto fail = [&] { throw_errno(fmt::format("cannot write {}", path.string())); };
  std::unique_ptr<std::FILE, Closer> file(std::fopen(path.c_str(), "wb"));
  if (!file) throw_errno(fmt::format("cannot open {}", path.string()));
  const auto write = [&](const void* data, size_t bytes) {
    if (bytes > 0 && std::fwrite(data, 1, bytes, file.get()) != bytes) fail();
  };
  const std::string text = format_safetensors_header(header);
  write(text.data(), text.size());
  for (const auto& [name, tensor] : order) write(tensor->bytes.data(), tensor->bytes.size());
  if (std::fclose(file.release()) != 0) fail();
}

}  // namespace seqfuse::io
