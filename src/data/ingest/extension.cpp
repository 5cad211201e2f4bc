#include "data/ingest/extension.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "data/read/field_values.h"

namespace seqfuse::data {
namespace fs = std::filesystem;
namespace {

constexpr size_t kEventsAtOnce = size_t{1} << 20;

// How many of the manifest's features come before those of the format: user_id.
int64_t features_before(const DatasetFormat& format) {
  return format.user_id_feature ? 1 : 0;
}

}  // namespace

std::string why_not_extendable(const ReadingFacts& facts) {
  if (facts.filtered) {
    return "--min-user-events or --min-item-events left out users and items, and new events could "
           "bring them back";
  }
  if (facts.joined) return "its users were looked up in all of its log files";
  if (facts.given_split) return "--given-split put its validation and test events last";
  if (facts.fractions) {
    return "its times have fractions, and a data set keeps whole units only, so that the order of "
           "new events among the old ones is not known";
  }
  if (facts.blank_times)
    return "--blank-time between placed events by their neighbours in the file";
  if (facts.strays_skipped) {
    return "rows were skipped, and more rows could change which actions are malformed";
  }
  return "";
}

ManifestFile extendable_manifest(const fs::path& dataset) {
  const fs::path file = dataset / "manifest.json";
  if (!fs::exists(file)) {
    throw_error<UsageError>("--extend {}: there is no {}; give a data set that preprocess made",
                            dataset.string(), file.string());
  }
  ManifestFile manifest = manifest_from_json(read_file(file), file.string());
  const std::string why = manifest.ingest
                              ? manifest.ingest->cannot_extend
                              : "it was made by a version that does not say how its log "
                                "was read";
  if (!why.empty()) {
    throw_error<DataError>(
        "{} cannot be extended: {}\n  preprocess the old and the new log together instead",
        dataset.string(), why);
  }
  return manifest;
}

Extension::Extension(const fs::path& dataset)
    : manifest_(extendable_manifest(dataset)), dataset_(Dataset::open(dataset)) {}

HistoryCounts Extension::counts() const {
  return {.blank_times = 0,
          .out_of_order = manifest_.ingest->out_of_order,
          .duplicates = manifest_.ingest->duplicates};
}

void Extension::ingest(const DatasetFormat& format, Ingested& out) const {
  const Manifest& summary = manifest_.summary;
  const IngestRecord& record = *manifest_.ingest;
  const std::string name = dataset_->directory().string();
  out.logs.push_back(name);
  out.sources = manifest_.sources;
  out.has_time = summary.has_timestamps;
  out.has_actions = summary.action_kind != ActionKind::none;
  if (record.has_time_unit) {
    out.units_per_second = summary.time_units_per_second;
    out.units_in = name;
  } else if (out.has_time) {
    out.numbers_in = name;
  }
  out.rows = record.rows;
  out.bad_rows = record.bad_rows;
  out.context_conflicts = record.context_conflicts;
  out.not_read = record.not_read;
  for (int64_t item = 1; item <= summary.num_items; ++item) {
    std::string title = dataset_->item_title(item);
    if (!title.empty()) out.titles[dataset_->item_id(item)] = {std::move(title)};
  }
  const std::vector<uint32_t> actions = action_codes(format, out);
  IdTable::Cache users, items;
  std::vector<uint32_t> item_codes = {0};
  for (int64_t item = 1; item <= summary.num_items; ++item) {
    item_codes.push_back(out.tables.items.code(dataset_->item_id(item), items));
  }
  std::vector<Event> events;
  const auto append = [&] {
    const std::span<const Event> piece(events);
    out.events.append({&piece, 1}, 0);
    events.clear();
  };
  for (int64_t row = 0; row < summary.num_users; ++row) {
    const uint32_t user = out.tables.users.code(dataset_->user_id(row), users);
    const UserSequence sequence = dataset_->user(row);
    for (size_t i = 0; i < sequence.items.size(); ++i) {
      Event& event = events.emplace_back();
      event.user = user;
      event.item = item_codes.at(static_cast<size_t>(sequence.items[i]));
      if (out.has_time) event.time = sequence.timestamps[i];
      if (!out.has_actions) continue;
      const int64_t label = sequence.actions[i];
      event.action = actions.empty() ? static_cast<int32_t>(label)
                                     : static_cast<int32_t>(actions.at(static_cast<size_t>(label)));
    }
    if (events.size() >= kEventsAtOnce) append();
  }
  append();
  ingest_context(format, out);
}

// By label. Empty where the event itself holds the label.
std::vector<uint32_t> Extension::action_codes(const DatasetFormat& format, Ingested& out) const {
  std::vector<uint32_t> codes;
  const bool from_log = manifest_.ingest->format != "processed-seqs";
  if (format.action_rule != ActionRule::values || !from_log) return codes;
  IdTable::Cache cache;
  for (const std::string& name : manifest_.summary.action_names) {
    codes.push_back(out.tables.actions.code(name, cache));
    if (!parse_double(name)) out.word_actions[codes.back()] = dataset_->directory().string();
  }
  return codes;
}

void Extension::ingest_context(const DatasetFormat& format, Ingested& out) const {
  const auto features = std::ssize(format.context);
  if (features == 0) return;
  // Features of a table of users belong to ids, those of the log to codes.
  const bool from_table = format.users && manifest_.ingest->format != "processed-seqs";
  IdTable::Cache users;
  std::vector<IdTable::Cache> caches(format.context.size());
  for (int64_t f = 0; f < features && !from_table; ++f) {
    out.tables.context.push_back(std::make_unique<IdTable>());
  }
  for (int64_t row = 0; row < dataset_->num_users(); ++row) {
    std::vector<std::string> values;
    for (int64_t f = 0; f < features; ++f) {
      const int64_t feature = f + features_before(format);
      const int64_t value = dataset_->context(feature, row);
      values.push_back(value == 0 ? "" : dataset_->context_value(feature, value));
    }
    const std::string id = dataset_->user_id(row);
    if (from_table) {
      out.users[id] = std::move(values);
      continue;
    }
    std::vector<uint32_t>& codes = out.row_context[out.tables.users.code(id, users)];
    for (size_t f = 0; f < values.size(); ++f) {
      codes.push_back(values[f].empty() ? UINT32_MAX
                                        : out.tables.context[f]->code(values[f], caches[f]));
    }
  }
  out.has_users = from_table;
}

void Extension::settle_sources(Ingested& in) const {
  const auto old = static_cast<int64_t>(manifest_.sources.size());
  const auto first_new = in.sources.begin() + old;
  const auto same_content = [](const SourceEntry& a, const SourceEntry& b) {
    return a.bytes == b.bytes && a.hash == b.hash;
  };
  std::vector<SourceEntry> kept;
  for (const SourceEntry& source : manifest_.sources) {
    const auto again = std::find_if(first_new, in.sources.end(), [&](const SourceEntry& entry) {
      return same_content(source, entry);
    });
    if (again == in.sources.end()) {
      kept.push_back(source);
      continue;
    }
    if (std::find(in.logs.begin() + 1, in.logs.end(), again->name) != in.logs.end()) {
      throw_error<DataError>(
          "{} is already in {}: it has the content of its source {}, and its events would count "
          "twice\n  to repeat them on purpose, preprocess all logs together",
          again->name, dataset_->directory().string(), source.name);
    }
  }
  kept.insert(kept.end(), first_new, in.sources.end());
  in.sources = std::move(kept);
}

}  // namespace seqfuse::data
