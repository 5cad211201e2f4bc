#include "report/run_datasets.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"

namespace seqfuse::report {
namespace fs = std::filesystem;
namespace {

std::string hash_at(const std::string& data) {
  try {
    return data::Dataset::open(data)->manifest().hash;
  } catch (const DataError& error) {
    throw_error<DataError>("--data {}: {}", data, error.what());
  }
}

void read(RunDataset& part, const std::string& expected_hash) {
  std::error_code ignored;
  if (!fs::exists(part.path, ignored)) {
    part.problem = fmt::format(
        "{} is missing. If the dataset was moved, give its new path: seqfuse report … --data "
        "DIR",
        part.path);
    return;
  }
  try {
    const auto dataset = data::Dataset::open(part.path);
    if (dataset->manifest().hash == expected_hash) {
      part.statistics = dataset_statistics(*dataset);
    } else {
      part.problem = fmt::format(
          "{} now holds another dataset than the one trained on. If the dataset was moved, "
          "give its new path: seqfuse report … --data DIR",
          part.path);
    }
  } catch (const Error& error) {  // the rest of the report does not need the dataset
    part.problem = error.what();
  }
}

}  // namespace

std::vector<RunDataset> run_datasets(const std::vector<RunLog>& runs, const std::string& data) {
  const std::string hash = data.empty() ? "" : hash_at(data);
  std::vector<RunDataset> parts;
  std::vector<std::string> hashes;
  for (const RunLog& run : runs) {
    const bool moved = !data.empty() && run.info.dataset_hash == hash;
    const std::string& path = moved ? data : run.info.dataset_path;
    size_t at = 0;
    while (at < parts.size() && (parts[at].path != path || hashes[at] != run.info.dataset_hash)) {
      ++at;
    }
    if (at == parts.size()) {
      parts.push_back({path, {}, std::nullopt, ""});
      hashes.push_back(run.info.dataset_hash);
    }
    parts[at].runs.push_back(run.name);
  }
  if (!data.empty() && std::find(hashes.begin(), hashes.end(), hash) == hashes.end()) {
    throw_error<DataError>(
        "--data {} holds another dataset ({}) than the runs were trained on ({})", data, hash,
        fmt::join(hashes, ", "));
  }
  for (size_t i = 0; i < parts.size(); ++i) read(parts[i], hashes[i]);
  return parts;
}

}  // namespace seqfuse::report
