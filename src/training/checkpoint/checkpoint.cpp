#include "training/checkpoint/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/progress.h"
#include "training/checkpoint/table_files.h"

namespace seqfuse::training {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

// 2: a table's file also contains the rows' optimiser state, and ids unless these are 0..n - 1.
constexpr int kFormat = 2, kOldestFormat = 1;
constexpr const char* kState = "state.json";
constexpr const char* kDense = "dense.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr std::string_view kTables = "tables/", kExtension = ".safetensors", kStep = "step_";

fs::path checkpoints_of(const fs::path& run_directory) {
  return run_directory / "checkpoints";
}

// Complete checkpoints of a run, newest first.
std::vector<std::pair<int64_t, fs::path>> list_checkpoints(const fs::path& run_directory) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(checkpoints_of(run_directory), error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kStep) || !fs::exists(entry.path() / kState, error)) continue;
    int64_t step = 0;
    const char* end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + kStep.size(), end, step);
    if (parsed.ec == std::errc{} && parsed.ptr == end) found.emplace_back(step, entry.path());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

void remove_old(const fs::path& run_directory, int64_t keep) {
  std::error_code ignored;
  const auto checkpoints = list_checkpoints(run_directory);
  for (size_t i = static_cast<size_t>(std::max<int64_t>(keep, 1)); i < checkpoints.size(); ++i) {
    // Rename first: a process killed here must not leave a partial checkpoint under this name.
    const fs::path& old = checkpoints[i].second;
    fs::rename(old, fmt::format("{}.tmp-{}", old.string(), getpid()), ignored);
  }
  remove_half_written(run_directory);
}

json read_state(const fs::path& file) {
  std::error_code error;
  if (!fs::exists(file, error)) {
    throw_error<DataError>("{} is missing: {} is not a complete checkpoint", file.string(),
                           file.parent_path().string());
  }
  json state = json::parse(read_file(file), nullptr, /*allow_exceptions=*/false);
  if (!state.is_object() || !state.contains("checksum")) {
    throw_error<DataError>("{}: damaged, or not a checkpoint's state", file.string());
  }
  const json checksum = state["checksum"];
  state.erase("checksum");
  if (checksum != hash_text(state.dump())) {
    throw_error<DataError>("{}: damaged: its content does not match its checksum", file.string());
  }
  const json& format = state.at("format");
  if (!format.is_number_integer() || format < kOldestFormat || format > kFormat) {
    throw_error<DataError>("{}: checkpoint format {}, this version reads formats {} to {}",
                           file.string(), format.dump(), kOldestFormat, kFormat);
  }
  return state;
}

// The tensors of a file that has the size and the hash of the checkpoint's state.
TensorMap load_checked(const fs::path& file, const json& expected) {
  std::error_code error;
  const uintmax_t size = fs::file_size(file, error);
  if (error) throw_error<DataError>("{}: {}", file.string(), error.message());
  if (size != expected.at("bytes").get<uintmax_t>()) {
    throw_error<DataError>("{}: {} bytes, but {} says {}: truncated or replaced", file.string(),
                           size, kState, expected.at("bytes").dump());
  }
  const std::string wanted = expected.at("hash").get<std::string>();
  const auto check_hash = [&](const std::string& hash) {
    if (hash == wanted) return;
    throw_error<DataError>("{}: damaged: its content does not match the hash in {}", file.string(),
                           kState);
  };
  std::string hash;
  TensorMap tensors;
  try {
    tensors = load_tensors(file, &hash);
  } catch (const DataError&) {
    check_hash(hash_file(file));  // says more than what is wrong with the header
    throw;
  }
  check_hash(hash);
  return tensors;
}

void write_checkpoint(const fs::path& run_directory, const Checkpoint& checkpoint) {
  PendingDirectory pending(checkpoints_of(run_directory) /
                           fmt::format("{}{}", kStep, checkpoint.step));
  json files = json::object();
  const auto save = [&](const std::string& name, const TensorMap& tensors) {
    const fs::path file = pending.path() / name;
    save_tensors(file, tensors);
    files[name] = {{"bytes", fs::file_size(file)}, {"hash", hash_file(file)}};
  };
  save(kDense, checkpoint.dense);
  save(kOptimizer, checkpoint.optimizer);
  fs::create_directory(pending.path() / kTables);
  for (const auto& [name, table] : checkpoint.tables) {
    save(fmt::format("{}{}{}", kTables, name, kExtension), to_tensors(name, table));
  }
  json state = {{"format", kFormat},
                {"step", checkpoint.step},
                {"files", std::move(files)},
                {"state", checkpoint.state}};
  state["checksum"] = hash_text(state.dump());
  write_file_atomically(pending.path() / kState, state.dump(2) + "\n");
  pending.commit();
}

int64_t bytes_of(const Checkpoint& checkpoint) {
  int64_t bytes = 0;
  const auto count = [&](const TensorMap& tensors) {
    for (const auto& [name, tensor] : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  };
  count(checkpoint.dense);
  count(checkpoint.optimizer);
  for (const auto& [name, table] : checkpoint.tables) count(to_tensors(name, table));
  return bytes;
}

}  // namespace

void save_checkpoint(const fs::path& run_directory, const Checkpoint& checkpoint, int64_t keep) {
  try {
    write_checkpoint(run_directory, checkpoint);
  } catch (const std::exception& error) {
    if (dynamic_cast<const IoError*>(&error) == nullptr &&
        dynamic_cast<const fs::filesystem_error*>(&error) == nullptr) {
      throw;
    }
    // Partial files have been removed by now.
    std::error_code ignored;
    const auto free = static_cast<double>(fs::space(run_directory, ignored).available);
    throw_error<IoError>(
        "the checkpoint of step {} was not saved: {}\n"
        "  it takes {}B in {}, where {}B are free; older checkpoints are intact",
        checkpoint.step, error.what(), format_count(static_cast<double>(bytes_of(checkpoint))),
        checkpoints_of(run_directory).string(), format_count(free));
  }
  remove_old(run_directory, keep);
}

void remove_half_written(const fs::path& run_directory) {
  std::error_code ignored;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(checkpoints_of(run_directory), ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.find(".tmp-") != std::string::npos || name.find(".old-") != std::string::npos) {
      leftovers.push_back(entry.path());
    }
  }
  for (const fs::path& leftover : leftovers) fs::remove_all(leftover, ignored);
}

Checkpoint load_checkpoint(const fs::path& directory) {
  json state = read_state(directory / kState);
  Checkpoint checkpoint;
  checkpoint.step = state.at("step");
  for (const auto& [name, expected] : state.at("files").items()) {
    const fs::path file = directory / name;
    TensorMap tensors = load_checked(file, expected);
    if (name == kDense) {
      checkpoint.dense = std::move(tensors);
    } else if (name == kOptimizer) {
      checkpoint.optimizer = std::move(tensors);
    } else {
      const std::string table = file.stem().string();
      checkpoint.tables[table] = to_contents(table, tensors, file.string());
    }
  }
  for (auto& [name, table] : checkpoint.tables) {
    take_table_state(checkpoint.optimizer, name, table);
  }
  checkpoint.state = std::move(state.at("state"));
  return checkpoint;
}

std::optional<fs::path> newest_checkpoint(const fs::path& run_directory) {
  const auto checkpoints = list_checkpoints(run_directory);
  if (checkpoints.empty()) return std::nullopt;
  return checkpoints.front().second;
}

}  // namespace seqfuse::training
