#include "models/files/config_reader.h"

#include <utility>

#include "base/file.h"

namespace seqfuse::models {
namespace fs = std::filesystem;
using nlohmann::json;

ConfigReader::ConfigReader(const fs::path& file, json object)
    : file_(file.string()), object_(std::move(object)) {
  if (!object_.is_object()) fail("expected a JSON object");
}

ConfigReader ConfigReader::open(const fs::path& file) {
  json object = json::parse(read_file(file), nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded()) throw_error<DataError>("{}: it is not valid JSON", file.string());
  return {file, std::move(object)};
}

ConfigReader ConfigReader::of_model(const fs::path& directory, const std::string& family) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) {
    throw_error<DataError>(
        "{} is not a folder; give the folder of a model, with config.json and model.safetensors",
        directory.string());
  }
  const fs::path file = directory / "config.json";
  if (!fs::exists(file, ignored)) {
    throw_error<DataError>("{} has no config.json; give the folder of a Hugging Face {}",
                           directory.string(), family);
  }
  return open(file);
}

const json* ConfigReader::find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

int64_t ConfigReader::size(const char* key) const {
  const json* value = find(key);
  if (value == nullptr) fail("{} is missing", key);
  if (!value->is_number_integer() || value->get<int64_t>() < 1) {
    fail("{} is {}; expected a whole number of 1 or more", key, value->dump());
  }
  return value->get<int64_t>();
}

double ConfigReader::positive(const char* key, double otherwise) const {
  const json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_number() || !(value->get<double>() > 0)) {
    fail("{} is {}; expected a number above 0", key, value->dump());
  }
  return value->get<double>();
}

bool ConfigReader::flag(const char* key, bool otherwise) const {
  const json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) fail("{} is {}; expected true or false", key, value->dump());
  return value->get<bool>();
}

std::string ConfigReader::text(const char* key, const std::string& otherwise) const {
  const json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) fail("{} is {}; expected a string", key, value->dump());
  return value->get<std::string>();
}

std::vector<int64_t> ConfigReader::ids(const char* key, int64_t vocab_size) const {
  const json* value = find(key);
  if (value == nullptr) return {};
  std::vector<int64_t> ids;
  for (const json& id : value->is_array() ? *value : json::array({*value})) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= vocab_size) {
      fail("{} is {}; expected ids from 0 to {}", key, value->dump(), vocab_size - 1);
    }
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

ConfigReader ConfigReader::object(const char* key) const {
  return {file_, *find(key)};
}

}  // namespace seqfuse::models
