#include "training/checkpoint/run_directory.h"

#include <cmath>
#include <map>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "training/checkpoint/checkpoint.h"

namespace seqfuse::training {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

// The numbers in a line of metrics.jsonl by TensorBoard tag, without undefined metrics.
report::Scalars scalars_of(const json& line) {
  report::Scalars scalars;
  for (const auto& [name, value] : line.items()) {
    if (name == "configuration") continue;
    if (name == "evaluation") {
      for (const auto& [metric, result] : value.items()) {
        if (!std::isnan(result.get<double>())) scalars.emplace_back("evaluation/" + metric, result);
      }
    } else if (name != "step" && name != "epoch" && name != "seconds" && name != "targets" &&
               name != "seen_targets") {
      scalars.emplace_back("train/" + name, value);
    }
  }
  return scalars;
}

// The values of changed parameters as of the lines of metrics.jsonl up to step.
std::map<std::string, std::string> recorded_values(const std::string& content, int64_t step) {
  std::map<std::string, std::string> values;
  for (size_t begin = 0, end; (end = content.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    const json line =
        json::parse(content.substr(begin, end - begin), nullptr, /*allow_exceptions=*/false);
    if (!line.is_object() || !line.contains("configuration")) continue;
    for (const auto& [name, change] : line.at("configuration").items()) {
      if (line.at("step").get<int64_t>() <= step) {
        values[name] = change.at("now");
      } else {
        values.emplace(name, change.at("before"));  // from a later line, which will be dropped
      }
    }
  }
  return values;
}

// Whether the directory contains only what a killed create() leaves; create() writes run.json last.
bool is_begun(const fs::path& path) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    const std::string whole = name.substr(0, name.find(".tmp-"));
    const bool ours = whole == "operative_config.gin" || whole == "metrics.jsonl" ||
                      (whole == "run.json" && whole != name);
    if (!ours || !entry.is_regular_file(error)) return false;
    if (name == "metrics.jsonl" && entry.file_size(error) != 0) return false;
  }
  return !error;
}

// Removes partial files of a killed process.
void remove_leftovers(const fs::path& path) {
  std::error_code ignored;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    if (entry.path().filename().string().find(".tmp-") != std::string::npos) {
      leftovers.push_back(entry.path());
    }
  }
  for (const fs::path& leftover : leftovers) fs::remove_all(leftover, ignored);
}

void make_room(const fs::path& path, bool force) {
  std::error_code error;
  if (!fs::exists(path, error)) return;
  if (fs::is_directory(path, error) && is_begun(path)) return;
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
  report::write_run_info(path, info);
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
  return RunDirectory(path, report::read_run_info(path));
}

RunDirectory RunDirectory::of_other_process(const fs::path& path, const RunInfo& info) {
  RunDirectory run(path, info);
  run.writes_ = false;
  return run;
}

void RunDirectory::record_changes(int64_t step, int64_t epoch,
                                  const std::vector<report::Difference>& changes,
                                  const std::string& operative_gin) {
  if (!writes_) return;
  std::map<std::string, std::string> before = recorded_values(read_file(metrics_file()), step);
  for (const report::Difference& change : changes) before.emplace(change.name, change.values[0]);
  const report::Parameters parameters = report::split_parameters(operative_gin);
  const std::map<std::string, std::string> now(parameters.begin(), parameters.end());
  json line = {{"step", step}, {"epoch", epoch}, {"configuration", json::object()}};
  for (const auto& [name, value] : before) {
    const auto found = now.find(name);
    const std::string in_force = found == now.end() ? "" : found->second;
    if (in_force != value) line["configuration"][name] = {{"before", value}, {"now", in_force}};
  }
  if (!line["configuration"].empty()) {
    truncate_metrics_after(step);
    append_metrics(line);
  }
  if (!changes.empty()) write_file_atomically(operative_config(), operative_gin);
}

void RunDirectory::record_dataset(const RunInfo& now) {
  const auto dataset = [](const RunInfo& info) {
    return std::tie(info.dataset_path, info.dataset_hash, info.dataset_users, info.dataset_events);
  };
  if (!writes_ || dataset(now) == dataset(info_)) return;
  info_.dataset_path = now.dataset_path;
  info_.dataset_hash = now.dataset_hash;
  info_.dataset_users = now.dataset_users;
  info_.dataset_events = now.dataset_events;
  report::write_run_info(path_, info_);
}

void RunDirectory::append_metrics(const json& line) {
  if (!writes_) return;
  append_to_file(metrics_file(), line.dump() + "\n");
  if (!events_) return;
  try {
    events_->add(line.at("step"), scalars_of(line));
  } catch (const IoError& error) {
    // Events only repeat metrics.jsonl, so training continues.
    log::warning("train", "{}; no more TensorBoard events", error.what());
    events_.reset();
  }
}

void RunDirectory::start_tensorboard() {
  events_.emplace(path_ / "tensorboard");
}

int64_t RunDirectory::truncate_metrics_after(int64_t step) {
  if (!writes_) return -1;
  remove_leftovers(path_);
  remove_half_written(path_);
  int64_t evaluated = -1;
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
    if (number->get<int64_t>() > step) continue;
    kept += line + "\n";
    if (object.contains("evaluation")) evaluated = number->get<int64_t>();
  }
  if (kept.size() != content.size()) write_file_atomically(metrics_file(), kept);
  if (events_) events_->restart_at(step + 1);
  return evaluated;
}

}  // namespace seqfuse::training
