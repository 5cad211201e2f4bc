#include "data/preprocess.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "data/arrow_files.h"
#include "data/user_history.h"

namespace seqfuse::data {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kShardEvents = int64_t{1} << 20;
constexpr int64_t kBytesPerShardEvent = 80;  // loaded, grouped by run, and as columns
constexpr int64_t kMaxActionValues = 10000;

struct Shard {
  int64_t begin = 0, end = 0;  // positions of users
  int64_t first_index = 0;     // of the shard's first user in the dataset
};

class Preprocessor {
 public:
  Preprocessor(const DatasetFormat& format, const PreprocessOptions& options)
      : format_(format),
        options_(options),
        output_(options.output),
        in_(scratch(), options.memory_limit * 6 / 10) {}

  PreprocessResult run() {
    ingest(format_, options_.ingest, in_);
    in_.events.finish();
    history_ = {in_.has_time, options_.ingest.blank_time == BlankTime::between,
                options_.deduplicate};
    select_users_and_items();
    map_actions();
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
    return {std::move(manifest_), in_.rows, in_.bad_rows, std::move(in_.bad_examples)};
  }

 private:
  fs::path scratch() const {
    const fs::path path = output_.path() / "scratch";
    fs::create_directories(path);
    return path;
  }

  int64_t num_positions() const { return in_.events.num_users(); }
  void rule(std::string sentence) { manifest_.rules.push_back(std::move(sentence)); }

  // Calls body(position, events) for each kept user, in parallel, with the user's sequence.
  template <class Body>
  void for_each_history(const Body& body) {
    std::vector<Shard> pieces = cut();
    run_bounded(static_cast<int64_t>(pieces.size()), [&](int64_t piece) {
      HistoryCounts counts;
      visit_histories(pieces[static_cast<size_t>(piece)], counts, body);
    });
  }

  template <class Body>
  void visit_histories(const Shard& shard, HistoryCounts& counts, const Body& body) {
    const std::vector<Event> events = in_.events.load(shard.begin, shard.end);
    std::vector<Event> history;
    size_t next = 0;
    for (int64_t position = shard.begin; position < shard.end; ++position) {
      const size_t begin = next;
      next += static_cast<size_t>(in_.events.count(position));
      if (!keep_user_[static_cast<size_t>(position)]) continue;
      history.clear();
      for (size_t i = begin; i < next; ++i) {
        if (keep_item_[events[i].item]) history.push_back(events[i]);
      }
      make_history(history, history_, counts);
      if (!history.empty()) body(position, history);
    }
  }

  // Users in order, in pieces of about kShardEvents events.
  std::vector<Shard> cut() const {
    std::vector<Shard> pieces;
    Shard shard;
    int64_t events = 0, index = 1;
    for (int64_t position = 0; position < num_positions(); ++position) {
      if (keep_user_[static_cast<size_t>(position)]) {
        events += user_events_.empty() ? in_.events.count(position)
                                       : user_events_[static_cast<size_t>(position)];
        ++index;
      }
      shard.end = position + 1;
      if (events >= kShardEvents || (position + 1 == num_positions() && events > 0)) {
        pieces.push_back(shard);
        shard = {position + 1, position + 1, index};
        events = 0;
      }
    }
    if (!pieces.empty()) pieces.front().first_index = 1;
    return pieces;
  }

  // Tasks side by side, as many as the memory limit allows.
  template <class Body>
  void run_bounded(int64_t tasks, const Body& body) {
    const int64_t allowed =
        std::max<int64_t>(1, options_.memory_limit * 4 / 10 / (kShardEvents * kBytesPerShardEvent));
    std::atomic<int64_t> next{0};
    parallel_tasks(std::min({tasks, allowed, int64_t{num_threads()}}), [&](int64_t) {
      for (int64_t task; (task = next.fetch_add(1)) < tasks;) body(task);
    });
  }

  // Counts events per user and item as the rules so far leave them.
  void survey(std::vector<int64_t>& item_events) {
    std::vector<std::atomic<uint32_t>> counts(in_.tables.items.code_bound());
    std::vector<int64_t> user_events(static_cast<size_t>(num_positions()));
    for_each_history([&](int64_t position, const std::vector<Event>& history) {
      user_events[static_cast<size_t>(position)] = static_cast<int64_t>(history.size());
      for (const Event& event : history) counts[event.item].fetch_add(1, std::memory_order_relaxed);
    });
    user_events_ = std::move(user_events);
    item_events.assign(counts.begin(), counts.end());
  }

  void select_users_and_items() {
    keep_user_.assign(static_cast<size_t>(num_positions()), true);
    keep_item_.assign(in_.tables.items.code_bound(), true);
    bool dropped = false;
    if (format_.joins_logs) dropped |= join_files();
    std::vector<int64_t> item_events;
    const bool filters = options_.min_user_events > 1 || options_.min_item_events > 1;
    if (dropped || filters || options_.deduplicate) survey(item_events);
    if (filters) {
      for (size_t p = 0; p < keep_user_.size(); ++p) {
        if (user_events_[p] < options_.min_user_events) keep_user_[p] = false;
      }
      for (size_t i = 0; i < keep_item_.size(); ++i) {
        if (item_events[i] < options_.min_item_events) keep_item_[i] = false;
      }
      survey(item_events);
      rule(fmt::format(
          "Users with fewer than {} events and items with fewer than {} are left out: counted "
          "once, over all events.",
          options_.min_user_events, options_.min_item_events));
    }
    if (!user_events_.empty()) {
      for (size_t p = 0; p < keep_user_.size(); ++p)
        keep_user_[p] = keep_user_[p] && user_events_[p] > 0;
    }
    if (std::find(keep_user_.begin(), keep_user_.end(), true) == keep_user_.end()) {
      throw_error<DataError>("no user is left: --min-user-events {}, --min-item-events {}",
                             options_.min_user_events, options_.min_item_events);
    }
    item_index_.assign(in_.tables.items.code_bound(), 0);
    for (const uint32_t code : in_.tables.items.sorted_codes()) {
      if (!item_events.empty() && item_events[code] == 0) continue;
      if (!keep_item_[code]) continue;
      items_.push_back(code);
      item_index_[code] = static_cast<int64_t>(items_.size());
    }
  }

  // The published rule for KuaiRand: only users that every file has. True if it dropped one.
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
      if (inner && !(in_all && known)) keep_user_[static_cast<size_t>(position)] = false;
    }
    if (inner) {
      rule(fmt::format(
          "Join inner, the published rule: users that are not in each of the {} log files and "
          "in the user table are dropped ({} of {}). --join outer keeps them: their events "
          "are as real as others', and a model in service meets such users.",
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

  // Sequences hold labels already: the format then names them, if it can.
  ActionRule action_rule() const {
    if (options_.ingest.kind == InputKind::log) return format_.action_rule;
    if (!in_.has_actions) return ActionRule::none;
    const bool named =
        format_.action_rule != ActionRule::none && format_.action_rule != ActionRule::values;
    return named ? format_.action_rule : ActionRule::labels;
  }

  void map_actions() {
    Manifest& summary = manifest_.summary;
    summary.action_kind = ActionKind::classes;
    switch (action_rule()) {
      case ActionRule::none:
        summary.action_kind = ActionKind::none;
        return;
      case ActionRule::whole_stars:
        for (int star = 1; star <= 5; ++star) summary.action_names.push_back(std::to_string(star));
        rule("Action: rating - 1, so 0 to 4.");
        break;
      case ActionRule::half_stars:
        for (int half = 1; half <= 10; ++half) {
          summary.action_names.push_back(fmt::format("{}.{}", half / 2, half % 2 * 5));
        }
        rule("Action: 2 * rating - 1, so 0 to 9.");
        break;
      case ActionRule::bits:
        summary.action_kind = ActionKind::bits;
        summary.action_names = format_.action_columns;
        rule(fmt::format("Action: bit k is set where column k of {} is not 0.",
                         fmt::join(format_.action_columns, ", ")));
        break;
      case ActionRule::values:
        map_action_values();
        break;
      case ActionRule::labels:
        name_labels();
        break;
    }
    const auto names = static_cast<int64_t>(summary.action_names.size());
    summary.num_actions = summary.action_kind == ActionKind::bits ? int64_t{1} << names : names;
    if (options_.ingest.kind == InputKind::processed_seqs) check_labels();
  }

  // Distinct values ascending: as numbers if all are, else bytewise.
  void map_action_values() {
    const IdTable& table = in_.tables.actions;
    if (table.size() > kMaxActionValues) {
      throw_error<DataError>(
          "--action-column {} has {} distinct values, at most {} are labels: is it the "
          "right column?",
          format_.action_columns[0], table.size(), kMaxActionValues);
    }
    std::vector<std::pair<std::string, uint32_t>> values;
    bool numbers = true;
    for (const uint32_t code : table.sorted_codes()) {
      values.emplace_back(table.text(code), code);
      numbers &= parse_double(values.back().first).has_value();
    }
    std::sort(values.begin(), values.end(), [&](const auto& a, const auto& b) {
      return numbers ? *parse_double(a.first) < *parse_double(b.first) : a.first < b.first;
    });
    action_index_.resize(table.code_bound());
    for (const auto& [value, code] : values) {
      action_index_[code] = static_cast<int64_t>(manifest_.summary.action_names.size());
      manifest_.summary.action_names.push_back(value);
    }
    rule(fmt::format("Action: the distinct values of {}, ascending, are 0 to {}.",
                     format_.action_columns[0], values.size() - 1));
  }

  int32_t highest_label() {
    std::atomic<int32_t> highest{0};
    for_each_history([&](int64_t, const std::vector<Event>& history) {
      int32_t mine = 0;
      for (const Event& event : history) mine = std::max(mine, event.action);
      for (int32_t seen = highest; seen < mine && !highest.compare_exchange_weak(seen, mine);) {
      }
    });
    return highest;
  }

  void check_labels() {
    const int32_t highest = highest_label();
    if (highest >= manifest_.summary.num_actions) {
      throw_error<DataError>("{} holds the label {}, but labels of {} are 0 to {}",
                             options_.ingest.input.string(), highest, format_.name,
                             manifest_.summary.num_actions - 1);
    }
  }

  void name_labels() {
    const int32_t highest = highest_label();
    if (highest >= kMaxActionValues) {
      throw_error<DataError>(
          "{} holds the label {}, at most {} are classes: is it the right column?",
          options_.ingest.input.string(), highest, kMaxActionValues - 1);
    }
    for (int32_t a = 0; a <= highest; ++a) {
      manifest_.summary.action_names.push_back(std::to_string(a));
    }
    rule("Action: the labels of the input as they are.");
  }

  void plan_shards() {
    shards_ = cut();
    for (int64_t position = 0; position < num_positions(); ++position) {
      if (keep_user_[static_cast<size_t>(position)]) users_.push_back(position);
    }
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
    write_vocabulary(output_.path() / file, size, id, title);
    return {file, size, hash_file(output_.path() / file)};
  }

  void write_vocabularies() {
    const auto title = [this](int64_t row) {
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

  // The vocabulary of one feature, and every user's index into it.
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
    run_bounded(static_cast<int64_t>(shards_.size()), [&](int64_t s) {
      const Shard& shard = shards_[static_cast<size_t>(s)];
      SequenceColumns columns;
      columns.context.resize(names.size());
      HistoryCounts counts;
      int64_t index = shard.first_index;
      visit_histories(shard, counts, [&](int64_t, const std::vector<Event>& history) {
        append(index++, history, columns);
      });
      const std::string file = fmt::format("sequences/part-{:05}.arrow", s);
      write_sequences(output_.path() / file, columns, names);
      manifest_.shards[static_cast<size_t>(s)] = {file, static_cast<int64_t>(columns.users.size()),
                                                  columns.offsets.back(),
                                                  hash_file(output_.path() / file)};
      const std::lock_guard lock(mutex_);
      counts_.blank_times += counts.blank_times;
      counts_.out_of_order += counts.out_of_order;
      counts_.duplicates += counts.duplicates;
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
        columns.actions.push_back(action_index_.empty()
                                      ? event.action
                                      : action_index_[static_cast<uint32_t>(event.action)]);
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
    for (const ShardEntry& shard : manifest_.shards) summary.num_events += shard.events;
    const size_t middle = lengths_.size() / 2;
    std::nth_element(lengths_.begin(), lengths_.begin() + static_cast<int64_t>(middle),
                     lengths_.end());
    const auto [shortest, longest] = std::minmax_element(lengths_.begin(), lengths_.end());
    manifest_.lengths = {
        *shortest, lengths_[middle], *longest,
        static_cast<double>(summary.num_events) / static_cast<double>(lengths_.size())};
    manifest_.sources = in_.sources;
    if (history_.keep_file_order) {
      rule(fmt::format(
          "Each user's events keep their order in the file; {} blank times lie between their "
          "neighbours; {} times that went backwards were raised to the one before.",
          counts_.blank_times, counts_.out_of_order));
    } else if (in_.has_time) {
      rule(fmt::format(
          "Each user's events are sorted by time; equal times keep their order in the file. "
          "{} events were earlier than the one before them in the file.",
          counts_.out_of_order));
    } else {
      rule("The log has no time: each user's events keep their order in the file.");
    }
    if (options_.deduplicate) {
      rule(fmt::format(
          "{} events equal to an earlier one in user, item, action and time were dropped.",
          counts_.duplicates));
    } else {
      rule("Duplicate events are kept.");
    }
    if (in_.bad_rows > 0)
      rule(fmt::format("{} malformed rows of {} were skipped.", in_.bad_rows, in_.rows));
    rule(
        "Indices of users, items and context values: 1, 2, ... by raw id, integers ascending "
        "before other "
        "ids bytewise; 0 is unknown. Users without events are left out.");
    if (in_.context_conflicts > 0) {
      rule(
          fmt::format("A user's context is that of the user's first row; {} rows differed from it.",
                      in_.context_conflicts));
    }
  }

  const DatasetFormat& format_;
  const PreprocessOptions& options_;
  PendingDirectory output_;
  Ingested in_;
  HistoryOptions history_;
  std::vector<char> keep_user_;                // by position
  std::vector<char> keep_item_;                // by code
  std::vector<int64_t> user_events_;           // by position, where a survey was made
  std::vector<uint32_t> items_;                // codes by index - 1
  std::vector<int64_t> item_index_;            // by code
  std::vector<int64_t> action_index_;          // by code, where actions are values
  std::vector<int64_t> users_;                 // positions by index - 1
  std::vector<std::vector<int64_t>> context_;  // per feature but user_id: by index - 1
  std::vector<int64_t> lengths_;               // by index - 1
  std::vector<Shard> shards_;
  std::set<std::string> vocabulary_files_;
  HistoryCounts counts_;
  std::mutex mutex_;
  ManifestFile manifest_;
};

void check_output(const PreprocessOptions& options) {
  std::error_code ignored;
  if (!fs::exists(options.output, ignored)) return;
  const std::string name = options.output.string();
  if (!options.force) {
    throw_error<UsageError>("{} exists: choose another --output, or replace it with --force", name);
  }
  const bool replaceable =
      fs::is_directory(options.output) &&
      (fs::is_empty(options.output) || fs::exists(options.output / "manifest.json"));
  if (!replaceable) {
    throw_error<UsageError>("{} is not a dataset directory: --force replaces nothing else", name);
  }
}

}  // namespace

PreprocessResult preprocess(const DatasetFormat& format, const PreprocessOptions& options) {
  check_output(options);
  return Preprocessor(format, options).run();
}

}  // namespace seqfuse::data
