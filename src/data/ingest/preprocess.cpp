#include "data/ingest/preprocess.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/parallel.h"
#include "data/dataset/arrow_files.h"
#include "data/ingest/action_labels.h"
#include "data/ingest/extension.h"
#include "data/ingest/kept_histories.h"
#include "data/ingest/reading_record.h"

namespace seqfuse::data {
namespace fs = std::filesystem;
namespace {

class Preprocessor {
 public:
  Preprocessor(const DatasetFormat& format, const PreprocessOptions& options)
      : format_(format),
        options_(options),
        output_(options.output),
        in_(scratch(), options.memory_limit * 6 / 10) {
    if (!options.extend.empty()) extension_.emplace(options.extend);
  }

  PreprocessResult run() {
    if (extension_) extension_->ingest(format_, in_);
    rows_before_ = in_.rows;
    bad_rows_before_ = in_.bad_rows;
    ingest(format_, options_.ingest, in_);
    if (extension_) {
      extension_->settle_sources(in_);
      counts_ = extension_->counts();
    }
    in_.events.finish();
    kept_.emplace(in_.events, history_options(), options_.memory_limit * 4 / 10,
                  in_.tables.items.code_bound());
    drop_stray_actions();
    select_users_and_items();
    label_actions();
    plan_shards();
    fs::create_directories(output_.path() / "sequences");
    fs::create_directories(output_.path() / "vocab");
    write_vocabularies();
    write_shards();
    fill_summary();
    const std::string json = manifest_to_json(manifest_);
    write_file_atomically(output_.path() / "manifest.json", json);
    fs::remove_all(scratch());
    output_.commit();
    const int64_t rows = in_.rows - rows_before_, bad_rows = in_.bad_rows - bad_rows_before_;
    return {std::move(manifest_), rows, bad_rows, std::move(in_.bad_examples),
            std::move(in_.not_read)};
  }

 private:
  fs::path scratch() const {
    const fs::path path = output_.path() / "scratch";
    fs::create_directories(path);
    return path;
  }

  int64_t num_positions() const { return in_.events.num_users(); }
  HistoryOptions history_options() const {
    return {in_.has_time, options_.ingest.blank_time == BlankTime::between, options_.deduplicate};
  }
  void rule(std::string sentence) { manifest_.rules.push_back(std::move(sentence)); }

  void drop_stray_actions() {
    strays_ = stray_actions(format_, options_.ingest, in_);
    for (const StrayAction& stray : strays_) {
      kept_->drop_action(static_cast<int32_t>(stray.code));
      in_.bad_rows += stray.events;
      in_.add_bad_example(stray.reason);
    }
  }

  void select_users_and_items() {
    // A row of sequences may turn out malformed after its first items were added.
    bool dropped = in_.bad_rows > 0;
    if (format_.joins_logs) dropped |= join_files();
    std::vector<int64_t> item_events;
    if (options_.min_user_events > 1 || options_.min_item_events > 1) {
      int64_t rounds = 0;
      item_events = kept_->drop_below(options_.min_user_events, options_.min_item_events,
                                      options_.iterative, rounds);
      rule(fmt::format(
          "Users with fewer than {} events and items with fewer than {} are left out: {}.",
          options_.min_user_events, options_.min_item_events,
          options_.iterative
              ? fmt::format("counted again until none had fewer, after {} rounds", rounds)
              : "counted once, over all events"));
    } else if (dropped || options_.deduplicate) {
      item_events = kept_->survey();
    }
    for (int64_t position = 0; position < num_positions(); ++position) {
      if (kept_->events(position) > 0) users_.push_back(position);
    }
    if (users_.empty()) {
      throw_error<DataError>("no user is left: --min-user-events {}, --min-item-events {}",
                             options_.min_user_events, options_.min_item_events);
    }
    item_index_.assign(in_.tables.items.code_bound(), 0);
    for (const uint32_t code : in_.tables.items.sorted_codes()) {
      if (!item_events.empty() && item_events[code] == 0) continue;
      items_.push_back(code);
      item_index_[code] = static_cast<int64_t>(items_.size());
    }
  }

  // The published rule for KuaiRand: keep only users that occur in every file. True if any user is
  // dropped.
  bool join_files() {
    const uint64_t all =
        in_.logs.size() == 64 ? ~uint64_t{0} : (uint64_t{1} << in_.logs.size()) - 1;
    int64_t missing = 0, unknown = 0;
    const bool inner = options_.join == Join::inner;
    for (int64_t position = 0; position < num_positions(); ++position) {
      const bool in_all = in_.events.files(position) == all;
      const bool known = !in_.has_users || in_.users.contains(user_text(position));
      missing += !in_all;
      unknown += in_all && !known;
      if (inner && !(in_all && known)) kept_->drop_user(position);
    }
    if (inner) {
      rule(fmt::format(
          "Join inner, the published rule: users that are not in each of the {} log files and "
          "in the user table are dropped ({} of {}). --join outer keeps them; use it for a "
          "model that will serve such users.",
          in_.logs.size(), missing + unknown, num_positions()));
      if (missing + unknown == num_positions()) {
        throw_error<DataError>("no user is in each of {}: use --join outer",
                               fmt::join(in_.logs, ", "));
      }
    } else {
      rule(fmt::format(
          "Join outer: users missing from some log file ({}) or from the user table ({}) are "
          "kept; the published rule (--join inner) drops them.",
          missing, unknown));
    }
    return inner && missing + unknown > 0;
  }

  std::string user_text(int64_t position) const {
    return in_.tables.users.text(in_.events.user_code(position));
  }

  void label_actions() {
    labels_ = make_action_labels(format_, options_.ingest, in_, *kept_, strays_);
    manifest_.summary.action_kind = labels_.kind;
    manifest_.summary.action_names = labels_.names;
    manifest_.summary.num_actions = labels_.count();
    if (!labels_.rule.empty()) rule(labels_.rule);
  }

  void plan_shards() {
    shards_ = kept_->cut();
    manifest_.summary.num_users = static_cast<int64_t>(users_.size());
    manifest_.summary.num_items = static_cast<int64_t>(items_.size());
    manifest_.summary.has_timestamps = in_.has_time;
    lengths_.resize(users_.size());
  }

  VocabularyEntry write_vocabulary_file(
      const std::string& name, int64_t size, const std::function<std::string(int64_t)>& id,
      const std::function<std::string(int64_t)>& title = nullptr) {
    std::string file = "vocab/";
    for (const char c : name) {
      const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                         (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
      file += plain ? c : '_';
    }
    while (!vocabulary_files_.insert(file).second) file += "_";
    file += ".arrow";
    return {file, size, write_vocabulary(output_.path() / file, size, id, title)};
  }

  void write_vocabularies() {
    const auto title = [this](int64_t row) {
      if (in_.titles.empty()) return std::string();
      const auto found = in_.titles.find(item_text(row));
      return found == in_.titles.end() ? std::string() : found->second[0];
    };
    manifest_.items = write_vocabulary_file(
        "item", static_cast<int64_t>(items_.size()), [this](int64_t row) { return item_text(row); },
        title);
    manifest_.users = write_vocabulary_file(
        "user", static_cast<int64_t>(users_.size()),
        [this](int64_t row) { return user_text(users_[static_cast<size_t>(row)]); });
    if (format_.user_id_feature) {
      manifest_.summary.context.push_back({"user_id", manifest_.users.size + 1});
      manifest_.context.push_back(manifest_.users);
    }
    for (size_t f = 0; f < format_.context.size(); ++f) write_context(f);
    manifest_.summary.hash = vocabulary_hash(manifest_);
  }

  std::string item_text(int64_t row) const {
    return in_.tables.items.text(items_[static_cast<size_t>(row)]);
  }

  // The raw value of a user's feature, "" if unknown.
  std::string context_text(size_t feature, int64_t position) const {
    if (!in_.tables.context.empty()) {
      const auto row = in_.row_context.find(in_.events.user_code(position));
      if (row == in_.row_context.end() || row->second[feature] == UINT32_MAX) return "";
      return in_.tables.context[feature]->text(row->second[feature]);
    }
    const auto row = in_.users.find(user_text(position));
    return row == in_.users.end() ? "" : row->second[feature];
  }

  // Writes one feature's vocabulary, and every user's index in it.
  void write_context(size_t feature) {
    IdTable table;
    IdTable::Cache cache;
    std::vector<uint32_t> codes;
    for (const int64_t position : users_) {
      const std::string text = context_text(feature, position);
      codes.push_back(text.empty() ? UINT32_MAX : table.code(text, cache));
    }
    const std::vector<uint32_t> sorted = table.sorted_codes();
    std::vector<int64_t> index(table.code_bound());
    for (size_t i = 0; i < sorted.size(); ++i) index[sorted[i]] = static_cast<int64_t>(i) + 1;
    std::vector<int64_t>& values = context_.emplace_back();
    for (const uint32_t code : codes) values.push_back(code == UINT32_MAX ? 0 : index[code]);
    const std::string& name = format_.context[feature].name;
    manifest_.context.push_back(write_vocabulary_file(
        name, static_cast<int64_t>(sorted.size()),
        [&](int64_t row) { return table.text(sorted[static_cast<size_t>(row)]); }));
    manifest_.summary.context.push_back({name, manifest_.context.back().size + 1});
  }

  void write_shards() {
    manifest_.shards.resize(shards_.size());
    std::vector<std::string> names;
    for (const ContextFeature& feature : manifest_.summary.context) names.push_back(feature.name);
    std::vector<SequenceColumns> columns_of(static_cast<size_t>(num_threads()));
    kept_->run_bounded(static_cast<int64_t>(shards_.size()), [&](int64_t s, int64_t worker) {
      const UserRange& shard = shards_[static_cast<size_t>(s)];
      SequenceColumns& columns = columns_of[static_cast<size_t>(worker)];
      columns.context.resize(names.size());
      columns.clear();
      columns.items.reserve(static_cast<size_t>(shard.events));
      if (labels_.kind != ActionKind::none) columns.actions.reserve(columns.items.capacity());
      if (in_.has_time) columns.timestamps.reserve(columns.items.capacity());
      HistoryCounts counts;
      int64_t index = shard.first_index;
      kept_->visit(shard, counts, [&](int64_t, const std::vector<Event>& history) {
        append(index++, history, columns);
      });
      const std::string file = fmt::format("sequences/part-{:05}.arrow", s);
      std::string hash = write_sequences(output_.path() / file, columns, names);
      manifest_.shards[static_cast<size_t>(s)] = {file, static_cast<int64_t>(columns.users.size()),
                                                  columns.offsets.back(), std::move(hash)};
      const std::lock_guard lock(mutex_);
      counts_ += counts;
    });
  }

  void append(int64_t index, const std::vector<Event>& history, SequenceColumns& columns) {
    columns.users.push_back(index);
    size_t feature = 0;
    if (format_.user_id_feature) columns.context[feature++].push_back(index);
    for (const auto& values : context_) {
      columns.context[feature++].push_back(values[static_cast<size_t>(index - 1)]);
    }
    for (const Event& event : history) columns.items.push_back(item_index_[event.item]);
    if (manifest_.summary.action_kind != ActionKind::none) {
      for (const Event& event : history) {
        columns.actions.push_back(labels_.label(event.action));
      }
    }
    if (in_.has_time) {
      for (const Event& event : history) columns.timestamps.push_back(event.time);
    }
    columns.offsets.push_back(static_cast<int32_t>(columns.items.size()));
    lengths_[static_cast<size_t>(index - 1)] = static_cast<int64_t>(history.size());
  }

  void fill_summary() {
    Manifest& summary = manifest_.summary;
    summary.dataset_name = format_.name;
    const bool is_log = options_.ingest.kind == InputKind::log;  // with the format's own times
    summary.time_units_per_second =
        in_.has_time ? in_.units_per_second.value_or(is_log ? format_.time_units_per_second : 0)
                     : 0;
    for (const ShardEntry& shard : manifest_.shards) summary.num_events += shard.events;
    const size_t middle = lengths_.size() / 2;
    std::nth_element(lengths_.begin(), lengths_.begin() + static_cast<int64_t>(middle),
                     lengths_.end());
    const auto [shortest, longest] = std::minmax_element(lengths_.begin(), lengths_.end());
    manifest_.lengths = {
        *shortest, lengths_[middle], *longest,
        static_cast<double>(summary.num_events) / static_cast<double>(lengths_.size())};
    manifest_.sources = in_.sources;
    const Reading reading = {format_, options_, in_, history_options(), counts_};
    for (std::string& sentence : reading_rules(reading)) rule(std::move(sentence));
    manifest_.ingest = ingest_record(reading);
  }

  const DatasetFormat& format_;
  const PreprocessOptions& options_;
  PendingDirectory output_;
  std::optional<Extension> extension_;
  Ingested in_;
  int64_t rows_before_ = 0, bad_rows_before_ = 0;  // of the data set that is extended
  std::optional<KeptHistories> kept_;              // once all events are in
  std::vector<uint32_t> items_;                    // codes by index - 1
  std::vector<int64_t> item_index_;                // by code
  std::vector<StrayAction> strays_;
  ActionLabels labels_;
  std::vector<int64_t> users_;                 // positions by index - 1
  std::vector<std::vector<int64_t>> context_;  // per feature but user_id: by index - 1
  std::vector<int64_t> lengths_;               // by index - 1
  std::vector<UserRange> shards_;
  std::set<std::string> vocabulary_files_;
  HistoryCounts counts_;
  std::mutex mutex_;
  ManifestFile manifest_;
};

// Refuses options by which new events could change old ones.
void check_extension(const PreprocessOptions& options) {
  if (options.extend.empty()) return;
  const bool filters = options.min_user_events > 1 || options.min_item_events > 1;
  if (!filters && !options.ingest.given_split) return;
  throw_error<UsageError>("--extend with {}: preprocess the old and the new log together instead",
                          filters ? "--min-user-events or --min-item-events" : "--given-split");
}

void check_output(const PreprocessOptions& options) {
  const fs::path last = options.output.filename();
  if (last == "." || last == "..") {
    throw_error<UsageError>("--output {}: give a folder other than the current one",
                            options.output.string());
  }
  std::error_code ignored;
  if (!fs::exists(options.output, ignored)) return;
  if (fs::is_directory(options.output) && fs::is_empty(options.output)) return;
  const std::string name = options.output.string();
  if (!options.force) {
    throw_error<UsageError>("{} exists: choose another --output, or replace it with --force", name);
  }
  const bool replaceable =
      fs::is_directory(options.output) && fs::exists(options.output / "manifest.json");
  if (!replaceable) {
    throw_error<UsageError>("{} is not a dataset directory: --force replaces nothing else", name);
  }
}

}  // namespace

PreprocessResult preprocess(const DatasetFormat& format, const PreprocessOptions& options) {
  check_output(options);
  check_extension(options);
  return Preprocessor(format, options).run();
}

}  // namespace seqfuse::data
