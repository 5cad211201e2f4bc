#include "serving/vectors.h"

#include <torch/types.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/progress.h"
#include "data/batch/append_windows.h"
#include "data/export/vector_file.h"
#include "serving/request_window.h"

namespace seqfuse::serving {
namespace {

constexpr int64_t kItemBlock = 4096;
constexpr int64_t kUserBlock = 256;  // windows that the model reads at a time

void require_vectors(const TrainedRun& run) {
  if (run.predictor->is_retrieval()) return;
  throw_error<UsageError>(
      "{} is a ranking run: it scores an item together with a history, so items and users have no "
      "vectors of their own\n"
      "  give a retrieval run (`seqfuse train retrieval`)",
      run.path.string());
}

[[noreturn]] void fail_not_finite(const TrainedRun& run, const char* what, const std::string& id) {
  throw_error<DataError>(
      "the vector of {} '{}' has values that are not finite: the weights of {}, step {}, are "
      "damaged\n"
      "  give another --checkpoint, or train again",
      what, id, run.path.string(), run.step);
}

// [n, D] as float32 on the CPU, all finite.
at::Tensor finite_values(const TrainedRun& run, const char* what, const at::Tensor& vectors,
                         const std::vector<std::string>& ids) {
  const at::Tensor values = vectors.to(at::kCPU, at::kFloat).contiguous();
  const at::Tensor finite = values.isfinite().all(1);
  if (!finite.all().item<bool>()) {
    const auto first = finite.to(at::kByte).argmin().item<int64_t>();
    fail_not_finite(run, what, ids[static_cast<size_t>(first)]);
  }
  return values;
}

std::span<const float> span_of(const at::Tensor& values) {
  return {values.const_data_ptr<float>(), static_cast<size_t>(values.numel())};
}

bool has_titles(const data::Vocabulary& vocabulary) {
  for (int64_t item = 1; item <= vocabulary.num_items(); ++item) {
    if (!vocabulary.item_title(item).empty()) return true;
  }
  return false;
}

void add_items(const TrainedRun& run, bool titles, Progress* progress,
               const data::AddVectors& add) {
  const at::Tensor& rows = run.predictor->catalogue().rows();
  for (int64_t begin = 1; begin < rows.size(0); begin += kItemBlock) {
    const int64_t end = std::min(rows.size(0), begin + kItemBlock);
    std::vector<std::string> ids, names;
    for (int64_t item = begin; item < end; ++item) {
      ids.push_back(run.vocabulary->item_id(item));
      if (titles) names.push_back(run.vocabulary->item_title(item));
    }
    const at::Tensor values = finite_values(run, "item", rows.slice(0, begin, end), ids);
    add({.ids = ids, .titles = names, .values = span_of(values)});
    if (progress != nullptr) progress->update(end - 1);
  }
}

std::vector<int64_t> users_with_events(const data::Dataset& dataset) {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < dataset.num_users(); ++row) {
    if (!dataset.user(row).items.empty()) rows.push_back(row);
  }
  return rows;
}

void add_users(const TrainedRun& run, const std::vector<int64_t>& rows, Progress* progress,
               const data::AddVectors& add) {
  const auto count = std::ssize(rows);
  for (int64_t begin = 0; begin < count; begin += kUserBlock) {
    const int64_t end = std::min(count, begin + kUserBlock);
    std::vector<std::string> ids;
    data::Batch windows;
    for (int64_t i = begin; i < end; ++i) {
      ids.push_back(run.dataset->user_id(rows[static_cast<size_t>(i)]));
      Request request;
      request.user = ids.back();
      data::append_windows(windows,
                           request_window(run.lookup(), run.predictor->spec(), request).batch);
    }
    const at::Tensor values = finite_values(run, "user", run.predictor->queries(windows), ids);
    add({.ids = ids, .titles = {}, .values = span_of(values)});
    if (progress != nullptr) progress->update(end);
  }
}

}  // namespace

ExportSummary export_vectors(const TrainedRun& run, VectorsOf what,
                             const std::filesystem::path& file, bool show_progress) {
  require_vectors(run);
  const training::Catalogue& catalogue = run.predictor->catalogue();
  const bool items = what == VectorsOf::items;
  std::vector<int64_t> users;
  if (!items) users = users_with_events(*run.dataset);
  ExportSummary summary{.count = items ? catalogue.num_items() : std::ssize(users),
                        .width = catalogue.rows().size(1)};
  if (!items) summary.without_events = run.dataset->num_users() - summary.count;
  const char* unit = items ? "items" : "users";
  const data::VectorFileInfo info = {.vectors = unit,
                                     .run = run.path.string(),
                                     .step = run.step,
                                     .dataset_hash = run.predictor->spec().dataset_hash,
                                     .count = summary.count,
                                     .width = summary.width,
                                     .titles = items && has_titles(*run.vocabulary)};
  std::optional<Progress> progress;
  if (show_progress) progress.emplace("export", unit, summary.count);
  Progress* shown = progress ? &*progress : nullptr;
  data::write_vectors(file, info, [&](const data::AddVectors& add) {
    if (items) {
      add_items(run, info.titles, shown, add);
    } else {
      add_users(run, users, shown, add);
    }
  });
  return summary;
}

std::vector<RankedItem> similar_items(const TrainedRun& run, std::string_view id, int64_t top_k) {
  require_vectors(run);
  const data::Vocabulary& vocabulary = *run.vocabulary;
  const std::optional<int64_t> item = vocabulary.find_item(id);
  if (!item) {
    throw_error<UsageError>(
        "item '{}' is not among the {} items of {}: give an id of the source, such as '{}'", id,
        vocabulary.num_items(), vocabulary.directory().string(), vocabulary.item_id(1));
  }
  const training::Catalogue& catalogue = run.predictor->catalogue();
  const at::Tensor query = catalogue.rows().slice(0, *item, *item + 1);
  if (!query.isfinite().all().item<bool>()) fail_not_finite(run, "item", std::string(id));
  const TopItems top = catalogue.top(query, top_k, ItemLists{std::vector<int64_t>{*item}});
  std::vector<RankedItem> similar;
  for (const ScoredItem& scored : top[0]) {
    similar.push_back({scored.item, {{"cosine", scored.score}}});
  }
  return similar;
}

}  // namespace seqfuse::serving
