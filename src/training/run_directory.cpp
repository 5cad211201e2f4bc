#include "training/run_directory.h"

#include <cerrno>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace seqfuse::training {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

json to_json(const RunInfo& info) {
  return {{"task", info.task},
          {"dataset_path", info.dataset_path},
          {"dataset_hash", info.dataset_hash},
          {"seed", info.seed},
          {"version", info.version}};
}

RunInfo info_from_json(const fs::path& file) {
  try {
    const json object = json::parse(read_file(file));
    return {.task = object.at("task"),
            .dataset_path = object.at("dataset_path"),
            .dataset_hash = object.at("dataset_hash"),
            .seed = object.at("seed"),
            .version = object.at("version")};
  } catch (const json::exception& error) {
    throw_error<DataError>("{}: not a run's description: {}", file.string(), error.what());
  }
}

void make_room(const fs::path& path, bool force) {
  std::error_code error;
  if (!fs::exists(path, error)) return;
  if (fs::is_directory(path, error) && fs::is_empty(path, error)) return;
  if (!fs::exists(path / "run.json", error)) {
    throw_error<UsageError>(
        "{} exists and is not a run: give another --output, or remove it yourself", path.string());
  }
  if (!force) {
    throw_error<UsageError>(
        "{} holds a run: continue it with --resume, replace it with --force, or give another "
        "--output",
        path.string());
  }
  fs::remove_all(path, error);
  if (error) throw_error<IoError>("cannot remove {}: {}", path.string(), error.message());
}

}  // namespace

RunDirectory::RunDirectory(fs::path path, RunInfo info)
    : path_(std::move(path)), info_(std::move(info)) {}

RunDirectory RunDirectory::create(const fs::path& path, const RunInfo& info,
                                  const std::string& operative_gin, bool force) {
  make_room(path, force);
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw_error<IoError>("cannot create {}: {}", path.string(), error.message());
  RunDirectory run(path, info);
  write_file_atomically(run.operative_config(), operative_gin);
  write_file_atomically(run.metrics_file(), "");
  write_file_atomically(path / "run.json", to_json(info).dump(2) + "\n");
  return run;
}

RunDirectory RunDirectory::open(const fs::path& path) {
  const fs::path description = path / "run.json";
  std::error_code error;
  if (!fs::exists(description, error)) {
    throw_error<DataError>(
        "{} is not a run directory: it has no run.json\n"
        "  give the directory that `seqfuse train --output` made",
        path.string());
  }
  return RunDirectory(path, info_from_json(description));
}

void RunDirectory::append_metrics(const json& line) {
  std::ofstream out(metrics_file(), std::ios::app | std::ios::binary);
  out << line.dump() + "\n" << std::flush;
  if (!out) throw_errno("cannot append to " + metrics_file().string());
}

void RunDirectory::truncate_metrics_after(int64_t step) {
  const std::string content = read_file(metrics_file());
  std::string kept;
  for (size_t begin = 0, end; (end = content.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    const std::string line = content.substr(begin, end - begin);
    const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto number = object.is_object() ? object.find("step") : object.end();
    if (number == object.end() || !number->is_number_integer()) {
      throw_error<DataError>("{}: a line without a step: {}", metrics_file().string(), line);
    }
    if (number->get<int64_t>() <= step) kept += line + "\n";
  }
  if (kept.size() != content.size()) write_file_atomically(metrics_file(), kept);
}

}  // namespace seqfuse::training
