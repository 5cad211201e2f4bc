#include "training/checkpoint/grown_vocabulary.h"

#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "base/error.h"
#include "data/dataset/saved_vocabulary.h"
#include "models/hstu/tables.h"
#include "training/checkpoint/model_spec_json.h"

namespace seqfuse::training {
namespace {

constexpr size_t kShown = 3;  // ids in a message
constexpr const char* kRemedy =
    "give a data set of all that the old one was made of and the new events, or train anew";

// The paths of both datasets, for messages.
struct Places {
  std::string before, now;
};

using Rows = std::vector<int64_t>;  // the new index of each old one

// The rows of old indices first..last.
Rows find_rows(const Places& places, const std::string& what, int64_t first, int64_t last,
               const std::function<std::string(int64_t)>& id,
               const std::function<std::optional<int64_t>(const std::string&)>& find) {
  Rows rows;
  std::vector<std::string> missing;
  int64_t num_missing = 0;
  for (int64_t index = first; index <= last; ++index) {
    const std::string text = id(index);
    const std::optional<int64_t> row = find(text);
    rows.push_back(row.value_or(0));
    if (row) continue;
    ++num_missing;
    if (missing.size() < kShown) missing.push_back(text);
  }
  if (num_missing > 0) {
    throw_error<DataError>(
        "{} lacks {} of the {} {} that the weights were trained on ({}), such as '{}': a "
        "vocabulary may grow, not shrink\n  {}",
        places.now, num_missing, last - first + 1, what, places.before, fmt::join(missing, "', '"),
        kRemedy);
  }
  return rows;
}

// With row 0, which is "unknown" in both.
Rows after_unknown(const Rows& known) {
  Rows rows = {0};
  rows.insert(rows.end(), known.begin(), known.end());
  return rows;
}

std::vector<std::string> names_of(const std::vector<data::ContextFeature>& features) {
  std::vector<std::string> names;
  for (const data::ContextFeature& feature : features) names.push_back(feature.name);
  return names;
}

void check_features(const Places& places, const data::Manifest& before, const data::Manifest& now) {
  const auto then = names_of(before.context), here = names_of(now.context);
  if (then == here) return;
  throw_error<DataError>(
      "{} has the context features [{}], the weights were trained with [{}] ({}): features and "
      "their order must be the same\n  {}",
      places.now, fmt::join(here, ", "), fmt::join(then, ", "), places.before, kRemedy);
}

Rows action_rows(const Places& places, const data::Manifest& before, const data::Manifest& now,
                 bool labels_must_stay) {
  if (before.action_kind != now.action_kind) {
    throw_error<DataError>(
        "the actions of {} are of another kind than those that the weights were trained on ({}): "
        "one has classes, the other bits or none\n  {}",
        places.now, places.before, kRemedy);
  }
  // Bits are added up: every label is a combination of them.
  labels_must_stay |= before.action_kind == data::ActionKind::bits;
  const auto &then = before.action_names, &here = now.action_names;
  const bool first_ones =
      here.size() >= then.size() && std::equal(then.begin(), then.end(), here.begin());
  if (labels_must_stay || then.empty()) {
    if (!first_ones || before.num_actions > now.num_actions) {
      throw_error<DataError>(
          "the actions of {} are [{}], the weights were trained on [{}] ({}): these must be the "
          "first ones, in this order\n  {}",
          places.now, fmt::join(here, ", "), fmt::join(then, ", "), places.before, kRemedy);
    }
    Rows rows;
    for (int64_t label = 0; label < before.num_actions; ++label) rows.push_back(label);
    return rows;
  }
  return find_rows(
      places, "actions", 0, before.num_actions - 1,
      [&](int64_t label) { return then.at(static_cast<size_t>(label)); },
      [&](const std::string& name) -> std::optional<int64_t> {
        const auto found = std::find(here.begin(), here.end(), name);
        if (found == here.end()) return std::nullopt;
        return found - here.begin();
      });
}

TableGrowth renumber(const std::string& table, const Rows& rows, int64_t rows_now,
                     Checkpoint& checkpoint) {
  embeddings::TableContents& contents = checkpoint.tables.at(table);
  const auto size = std::ssize(rows);
  const bool dynamic = contents.state.contains(embeddings::kSharedRow);
  SEQFUSE_CHECK_AS(
      DataError, contents.size() == size || (dynamic && contents.size() < size),
      "the checkpoint's table {} has {} rows, the vocabulary saved in its run {}: they "
      "are not of the same run",
      table, contents.size(), size);
  const at::Tensor map = torch::tensor(at::ArrayRef<int64_t>(rows), torch::kLong);
  if (contents.ids.defined()) {
    const at::Tensor inside = contents.ids.ge(0).logical_and(contents.ids.lt(size));
    SEQFUSE_CHECK_AS(DataError, inside.all().item<bool>(),
                     "the checkpoint's table {} has ids outside 0..{}: it is damaged", table,
                     size - 1);
    contents.ids = map.index_select(0, contents.ids);
  } else {
    contents.ids = map;
  }
  // Rows of other ids lie elsewhere.
  if (dynamic) contents.state.erase("slots");
  return {.table = table, .kept = contents.size(), .added = rows_now - size};
}

}  // namespace

std::vector<TableGrowth> move_to_vocabulary(Checkpoint& checkpoint, const data::Vocabulary& before,
                                            const data::Vocabulary& now,
                                            const models::hstu::ModelSpec& spec) {
  const data::Manifest &then = before.manifest(), &here = now.manifest();
  const Places places{before.directory().string(), now.directory().string()};
  nlohmann::json& description = checkpoint.state["spec"];
  if (description.value("dataset_hash", "") != then.hash) {
    throw_error<DataError>(
        "{} is not the vocabulary that the checkpoint was trained on: its hash is {}, the "
        "checkpoint's {}\n  give the data set that it was trained on",
        places.before, then.hash, description.value("dataset_hash", ""));
  }
  std::vector<TableGrowth> growth;
  const Rows items = find_rows(
      places, "items", 1, before.num_items(), [&](int64_t item) { return before.item_id(item); },
      [&](const std::string& id) { return now.find_item(id); });
  growth.push_back(renumber("item", after_unknown(items), now.num_items() + 1, checkpoint));
  if (checkpoint.tables.contains("action")) {
    const bool ranks = spec.task == models::hstu::Task::ranking;
    growth.push_back(
        renumber("action", action_rows(places, then, here, ranks), here.num_actions, checkpoint));
  }
  const bool reads_context = std::any_of(
      then.context.begin(), then.context.end(), [&](const data::ContextFeature& feature) {
        return checkpoint.tables.contains(models::hstu::table_name(feature));
      });
  if (reads_context) {
    check_features(places, then, here);
    for (size_t f = 0; f < then.context.size(); ++f) {
      const auto feature = static_cast<int64_t>(f);
      const Rows values = find_rows(
          places, "values of context feature " + then.context[f].name, 1,
          then.context[f].vocab_size - 1,
          [&](int64_t value) { return before.context_value(feature, value); },
          [&](const std::string& value) { return now.find_context(feature, value); });
      growth.push_back(renumber(models::hstu::table_name(then.context[f]), after_unknown(values),
                                here.context[f].vocab_size, checkpoint));
    }
  }
  const nlohmann::json grown = to_json(spec);
  for (const char* size : {"num_items", "num_actions", "context", "dataset_hash"}) {
    description[size] = grown.at(size);
  }
  return growth;
}

std::vector<TableGrowth> move_to_vocabulary(Checkpoint& checkpoint,
                                            const std::filesystem::path& saved_vocabulary,
                                            const data::Vocabulary& now,
                                            const models::hstu::ModelSpec& spec) {
  if (!data::has_saved_vocabulary(saved_vocabulary)) return {};
  const auto before = data::open_saved_vocabulary(saved_vocabulary).vocabulary;
  const nlohmann::json description = checkpoint.state.value("spec", nlohmann::json::object());
  if (description.value("dataset_hash", "") == spec.dataset_hash) {
    // The hash is of ids and values. A run that was killed while it moved has another vocabulary.
    const data::Manifest &then = before->manifest(), &here = now.manifest();
    const bool its_own = then.hash == spec.dataset_hash &&
                         description.value("num_actions", int64_t{0}) == then.num_actions;
    if (!its_own ||
        (then.action_kind == here.action_kind && then.action_names == here.action_names &&
         then.num_actions == here.num_actions)) {
      return {};
    }
  }
  return move_to_vocabulary(checkpoint, *before, now, spec);
}

std::string growth_text(const std::vector<TableGrowth>& growth) {
  std::vector<std::string> parts;
  for (const TableGrowth& each : growth) {
    parts.push_back(
        fmt::format("table {}: {} rows kept, {} new", each.table, each.kept, each.added));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace seqfuse::training
