#include "serving/batch/unfinished_batch.h"

#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "serving/batch/request_blocks.h"

namespace seqfuse::serving {
namespace fs = std::filesystem;
using nlohmann::ordered_json;
namespace {

constexpr const char* kSettings = "settings.json";

std::string settings_json(const BatchSettings& settings) {
  ordered_json json = ordered_json::object();
  for (const auto& [name, value] : settings) json[name] = value;
  // Names of files need not be UTF-8.
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string setting_text(const ordered_json& settings, const std::string& name) {
  const auto found = settings.find(name);
  const bool given = found != settings.end() && found->is_string() && !found->empty();
  const std::string value = given ? found->get<std::string>() : "";
  return value.empty() ? "not given" : value;
}

}  // namespace

UnfinishedBatch::UnfinishedBatch(const fs::path& output, BatchSettings settings)
    : output_(output),
      folder_(output.string() + ".unfinished"),
      settings_(std::move(settings)),
      key_(hash_text(settings_json(settings_))) {}

fs::path UnfinishedBatch::file_of(int64_t block) const {
  return folder_ / fmt::format("block-{:08}", block);
}

std::string UnfinishedBatch::key_of(const std::vector<UserRequest>& requests) const {
  return fmt::format("{} {}", key_, hash_of(requests));
}

int64_t UnfinishedBatch::blocks() const {
  std::error_code error;
  int64_t found = 0;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    found += entry.path().filename().string().starts_with("block-");
  }
  return found;
}

int64_t UnfinishedBatch::open(bool resume) const {
  const int64_t found = blocks();
  if (found > 0 && !resume) {
    throw_error<UsageError>(
        "{} holds {} blocks of a batch that was interrupted: go on with --resume, or remove it to "
        "start from the beginning",
        folder_.string(), found);
  }
  if (found > 0) check_settings();
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw_error<IoError>("cannot create {}: {}", folder_.string(), error.message());
  for (const auto& entry : fs::directory_iterator(folder_, error)) {  // cut off while written
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("block-") && name != kSettings) fs::remove(entry.path(), error);
  }
  // Those of blocks that were found are equal, and stay: the disk may be full.
  if (found == 0) write_file_atomically(folder_ / kSettings, settings_json(settings_));
  return found;
}

void UnfinishedBatch::check_settings() const {
  const fs::path file = folder_ / kSettings;
  std::error_code error;
  const ordered_json before =
      fs::exists(file, error)
          ? ordered_json::parse(read_file(file), nullptr, /*allow_exceptions=*/false)
          : ordered_json();
  if (!before.is_object()) {
    throw_error<UsageError>(
        "{} does not say which options its blocks were made with: remove it to start from the "
        "beginning",
        folder_.string());
  }
  const ordered_json now = ordered_json::parse(settings_json(settings_));
  std::string differences;
  for (const auto& [name, value] : settings_) {
    const std::string old_value = setting_text(before, name), new_value = setting_text(now, name);
    if (old_value == new_value) continue;
    differences += fmt::format("\n  {}: {} before, {} now", name, old_value, new_value);
  }
  if (differences.empty()) return;
  throw_error<UsageError>(
      "--resume: {} holds blocks of a batch with other options:{}\n"
      "  give the options of before, or remove the folder to start from the beginning",
      folder_.string(), differences);
}

std::optional<AnsweredBlock> UnfinishedBatch::find(int64_t block, const std::string& key) const {
  std::error_code error;
  if (!fs::exists(file_of(block), error)) return std::nullopt;
  return from_bytes(read_file(file_of(block)), key);
}

void UnfinishedBatch::keep(int64_t block, const std::string& key,
                           const AnsweredBlock& answers) const {
  const fs::path file = file_of(block), temporary = folder_ / fmt::format("tmp-{}", getpid());
  const std::string bytes = to_bytes(answers, key);
  std::ofstream out(temporary, std::ios::binary);
  errno = 0;
  out.write(bytes.data(), std::ssize(bytes)).flush();
  const bool written = out.good();
  const int reason = errno;
  out.close();
  std::error_code error;
  if (written) fs::rename(temporary, file, error);
  if (written && !error) return;
  const std::string why = written ? error.message() : std::generic_category().message(reason);
  fs::remove(temporary, error);
  throw_error<IoError>("cannot write {}: {}", file.string(), why);
}

AnsweredBlock UnfinishedBatch::read(int64_t block) const {
  const std::string bytes = read_file(file_of(block));
  auto found = from_bytes(bytes, bytes.substr(0, bytes.find('\n')));
  if (!found) {
    throw_error<DataError>("{} is damaged: --resume computes it again", file_of(block).string());
  }
  return *std::move(found);
}

void UnfinishedBatch::finish(const std::function<void(const fs::path&)>& write) const {
  const fs::path whole = folder_ / "output";
  write_file_atomically(whole, write);
  write_file_atomically(output_, [&](const fs::path& temporary) {
    std::error_code error;
    fs::rename(whole, temporary, error);
    if (error) throw_error<IoError>("cannot rename {}: {}", whole.string(), error.message());
  });
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

bool UnfinishedBatch::holds_blocks_or_remove() const {
  if (blocks() > 0) return true;
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
  return false;
}

}  // namespace seqfuse::serving
