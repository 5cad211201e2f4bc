#include "data/dataset/manifest.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/hash.h"

namespace seqfuse::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kActionKinds[] = {"none", "classes", "bits"};

Json vocabulary_json(const VocabularyEntry& entry) {
  return {{"file", entry.file}, {"size", entry.size}, {"hash", entry.hash}};
}

constexpr const char* kPreprocess = "`seqfuse preprocess` makes it anew";
constexpr const char* kGiveDataset = "--data DIR takes the vocabulary of the dataset instead";

// Reads a JSON object; knows its path and the advice for error messages.
class Fields {
 public:
  Fields(const Json& json, std::string file, std::string path, const char* remedy)
      : json_(json), file_(std::move(file)), path_(std::move(path)), remedy_(remedy) {
    if (!json.is_object()) fail(path_, "an object");
  }

  bool has(const char* name) const { return json_.contains(name); }

  Fields object(const char* name) const { return {at(name), file_, child(name), remedy_}; }

  std::string text(const char* name) const {
    const Json& value = at(name);
    if (!value.is_string()) fail(child(name), "a string");
    return value.get<std::string>();
  }

  int64_t integer(const char* name, int64_t smallest = 0) const {
    const Json& value = at(name);
    const bool fits = value.is_number_integer() &&
                      !(value.is_number_unsigned() &&
                        value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()});
    if (!fits || value.get<int64_t>() < smallest) {
      fail(child(name), fmt::format("an integer >= {}", smallest));
    }
    return value.get<int64_t>();
  }

  double number(const char* name) const {
    const Json& value = at(name);
    if (!value.is_number()) fail(child(name), "a number");
    return value.get<double>();
  }

  bool boolean(const char* name) const {
    const Json& value = at(name);
    if (!value.is_boolean()) fail(child(name), "true or false");
    return value.get<bool>();
  }

  std::vector<std::string> texts(const char* name) const {
    std::vector<std::string> result;
    for (const Json& value : array(name)) {
      if (!value.is_string()) fail(child(name), "a list of strings");
      result.push_back(value.get<std::string>());
    }
    return result;
  }

  std::vector<Fields> objects(const char* name) const {
    std::vector<Fields> result;
    for (const Json& value : array(name)) {
      result.emplace_back(value, file_, fmt::format("{}[{}]", child(name), result.size()), remedy_);
    }
    return result;
  }

  VocabularyEntry vocabulary(const char* name) const {
    const Fields entry = object(name);
    return {entry.text("file"), entry.integer("size"), entry.text("hash")};
  }

  [[noreturn]] void fail(const std::string& field, std::string_view expected) const {
    throw_error<DataError>("{}: field {} must be {}\n  was it edited? {}", file_,
                           field.empty() ? "(top)" : field, expected, remedy_);
  }

 private:
  std::string child(const char* name) const { return path_.empty() ? name : path_ + "." + name; }

  const Json& at(const char* name) const {
    const auto found = json_.find(name);
    if (found == json_.end()) {
      throw_error<DataError>("{}: field {} is missing\n  {}", file_, child(name), remedy_);
    }
    return *found;
  }

  const Json& array(const char* name) const {
    const Json& value = at(name);
    if (!value.is_array()) fail(child(name), "a list");
    return value;
  }

  const Json& json_;
  std::string file_, path_;
  const char* remedy_;
};

Json parse_json(std::string_view text, const std::string& file, const char* remedy) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    throw_error<DataError>(
        "{} is not valid JSON: it is truncated or was edited ({})\n"
        "  {}",
        file, error.what(), remedy);
  }
}

Json actions_to_json(const Manifest& summary) {
  return {{"kind", kActionKinds[static_cast<int>(summary.action_kind)]},
          {"num_actions", summary.num_actions},
          {"names", summary.action_names}};
}

Json context_to_json(const Manifest& summary, const std::vector<VocabularyEntry>& vocabularies) {
  Json context = Json::array();
  for (size_t f = 0; f < summary.context.size(); ++f) {
    context.push_back({{"name", summary.context[f].name},
                       {"vocab_size", summary.context[f].vocab_size},
                       {"vocabulary", vocabulary_json(vocabularies[f])}});
  }
  return context;
}

void read_actions(const Fields& actions, Manifest& summary) {
  const std::string kind = actions.text("kind");
  for (int k = 0;; ++k) {
    if (k == 3) actions.fail("actions.kind", "none, classes or bits");
    if (kind != kActionKinds[k]) continue;
    summary.action_kind = static_cast<ActionKind>(k);
    break;
  }
  summary.num_actions = actions.integer("num_actions");
  summary.action_names = actions.texts("names");
}

void read_times(const Fields& top, Manifest& summary) {
  summary.has_timestamps = top.boolean("has_timestamps");
  if (top.has("time_units_per_second")) {
    summary.time_units_per_second = top.integer("time_units_per_second", 1);
  }
}

void read_context(const Fields& top, Manifest& summary, std::vector<VocabularyEntry>& entries) {
  for (const Fields& feature : top.objects("context")) {
    summary.context.push_back({feature.text("name"), feature.integer("vocab_size", 1)});
    entries.push_back(feature.vocabulary("vocabulary"));
    if (entries.back().size + 1 != summary.context.back().vocab_size) {
      top.fail(fmt::format("context[{}].vocab_size", entries.size() - 1), "vocabulary.size + 1");
    }
  }
}

Json ingest_to_json(const IngestRecord& ingest) {
  return {{"format", ingest.format},
          {"user_column", ingest.user_column},
          {"item_column", ingest.item_column},
          {"time_column", ingest.time_column},
          {"action_columns", ingest.action_columns},
          {"title_file", ingest.title_file},
          {"title_column", ingest.title_column},
          {"blank_time_between", ingest.blank_time_between},
          {"deduplicate", ingest.deduplicate},
          {"has_time_unit", ingest.has_time_unit},
          {"rows", ingest.rows},
          {"bad_rows", ingest.bad_rows},
          {"context_conflicts", ingest.context_conflicts},
          {"out_of_order", ingest.out_of_order},
          {"duplicates", ingest.duplicates},
          {"not_read", ingest.not_read},
          {"cannot_extend", ingest.cannot_extend}};
}

IngestRecord read_ingest(const Fields& ingest) {
  return {.format = ingest.text("format"),
          .user_column = ingest.text("user_column"),
          .item_column = ingest.text("item_column"),
          .time_column = ingest.text("time_column"),
          .action_columns = ingest.texts("action_columns"),
          .title_file = ingest.has("title_file") ? ingest.text("title_file") : "",
          .title_column = ingest.has("title_column") ? ingest.text("title_column") : "",
          .blank_time_between = ingest.boolean("blank_time_between"),
          .deduplicate = ingest.boolean("deduplicate"),
          .has_time_unit = ingest.boolean("has_time_unit"),
          .rows = ingest.integer("rows"),
          .bad_rows = ingest.integer("bad_rows"),
          .context_conflicts = ingest.integer("context_conflicts"),
          .out_of_order = ingest.integer("out_of_order"),
          .duplicates = ingest.integer("duplicates"),
          .not_read = ingest.texts("not_read"),
          .cannot_extend = ingest.text("cannot_extend")};
}

void check_counts(const ManifestFile& manifest, const Fields& top) {
  const Manifest& summary = manifest.summary;
  unsigned __int128 rows = 0, events = 0;
  for (const ShardEntry& shard : manifest.shards) {
    rows += static_cast<uint64_t>(shard.rows);
    events += static_cast<uint64_t>(shard.events);
  }
  if (rows != static_cast<uint64_t>(summary.num_users))
    top.fail("num_users", "the sum of shards[].rows");
  if (events != static_cast<uint64_t>(summary.num_events)) {
    top.fail("num_events", "the sum of shards[].events");
  }
  if (manifest.items.size != summary.num_items) top.fail("item_vocabulary.size", "num_items");
  if (manifest.users.size != summary.num_users) top.fail("user_vocabulary.size", "num_users");
}

// remedy: the end of the message.
void check_version(const Fields& top, const std::string& file, std::string_view remedy) {
  const int64_t version = top.integer("format_version");
  if (version == kManifestVersion) return;
  throw_error<DataError>("{}: format_version is {}, this build reads {}{}", file, version,
                         kManifestVersion, remedy);
}

}  // namespace

std::string manifest_to_json(const ManifestFile& manifest) {
  const Manifest& summary = manifest.summary;
  Json json = {
      {"format_version", kManifestVersion},
      {"dataset_name", summary.dataset_name},
      {"num_users", summary.num_users},
      {"num_items", summary.num_items},
      {"num_events", summary.num_events},
      {"has_timestamps", summary.has_timestamps},
      {"actions", actions_to_json(summary)},
      {"sequence_length",
       {{"min", manifest.lengths.min},
        {"mean", manifest.lengths.mean},
        {"median", manifest.lengths.median},
        {"max", manifest.lengths.max}}},
      {"context", context_to_json(summary, manifest.context)},
      {"item_vocabulary", vocabulary_json(manifest.items)},
      {"user_vocabulary", vocabulary_json(manifest.users)},
      {"vocabulary_hash", summary.hash},
      {"shards", Json::array()},
      {"sources", Json::array()},
      {"rules", manifest.rules},
  };
  if (summary.time_units_per_second > 0) {
    json["time_units_per_second"] = summary.time_units_per_second;
  }
  if (manifest.ingest) json["ingest"] = ingest_to_json(*manifest.ingest);
  for (const ShardEntry& shard : manifest.shards) {
    json["shards"].push_back({{"file", shard.file},
                              {"rows", shard.rows},
                              {"events", shard.events},
                              {"hash", shard.hash}});
  }
  for (const SourceEntry& source : manifest.sources) {
    json["sources"].push_back(
        {{"name", source.name}, {"bytes", source.bytes}, {"hash", source.hash}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

ManifestFile manifest_from_json(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file, kPreprocess);
  const Fields top(json, file, "", kPreprocess);
  check_version(top, file, ": run `seqfuse preprocess` again");
  ManifestFile manifest;
  Manifest& summary = manifest.summary;
  summary.dataset_name = top.text("dataset_name");
  summary.num_users = top.integer("num_users", 1);
  summary.num_items = top.integer("num_items", 1);
  summary.num_events = top.integer("num_events", 1);
  read_times(top, summary);
  read_actions(top.object("actions"), summary);
  const Fields lengths = top.object("sequence_length");
  manifest.lengths = {lengths.integer("min"), lengths.integer("median"), lengths.integer("max"),
                      lengths.number("mean")};
  read_context(top, summary, manifest.context);
  manifest.items = top.vocabulary("item_vocabulary");
  manifest.users = top.vocabulary("user_vocabulary");
  summary.hash = top.text("vocabulary_hash");
  for (const Fields& shard : top.objects("shards")) {
    manifest.shards.push_back(
        {shard.text("file"), shard.integer("rows"), shard.integer("events"), shard.text("hash")});
  }
  for (const Fields& source : top.objects("sources")) {
    manifest.sources.push_back({source.text("name"), source.integer("bytes"), source.text("hash")});
  }
  manifest.rules = top.texts("rules");
  if (top.has("ingest")) manifest.ingest = read_ingest(top.object("ingest"));
  check_counts(manifest, top);
  if (summary.hash != vocabulary_hash(manifest)) {
    top.fail("vocabulary_hash", "the hash of the vocabularies' hashes");
  }
  return manifest;
}

std::string vocabulary_to_json(const VocabularyFile& vocabulary) {
  const Manifest& summary = vocabulary.summary;
  Json json = {{"format_version", kManifestVersion},
               {"dataset_name", summary.dataset_name},
               {"num_items", summary.num_items},
               {"has_timestamps", summary.has_timestamps},
               {"actions", actions_to_json(summary)},
               {"context", context_to_json(summary, vocabulary.context)},
               {"item_vocabulary", vocabulary_json(vocabulary.items)},
               {"vocabulary_hash", summary.hash},
               {"typical_gap", vocabulary.typical.gap},
               {"typical_action", vocabulary.typical.action}};
  if (summary.time_units_per_second > 0) {
    json["time_units_per_second"] = summary.time_units_per_second;
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

VocabularyFile vocabulary_from_json(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file, kGiveDataset);
  const Fields top(json, file, "", kGiveDataset);
  check_version(top, file, fmt::format("\n  {}", kGiveDataset));
  VocabularyFile vocabulary;
  Manifest& summary = vocabulary.summary;
  summary.dataset_name = top.text("dataset_name");
  summary.num_items = top.integer("num_items", 1);
  read_times(top, summary);
  read_actions(top.object("actions"), summary);
  read_context(top, summary, vocabulary.context);
  vocabulary.items = top.vocabulary("item_vocabulary");
  if (vocabulary.items.size != summary.num_items) top.fail("item_vocabulary.size", "num_items");
  summary.hash = top.text("vocabulary_hash");
  vocabulary.typical = {.gap = top.integer("typical_gap"), .action = top.integer("typical_action")};
  if (vocabulary.typical.action >= std::max<int64_t>(summary.num_actions, 1)) {
    top.fail("typical_action", "below actions.num_actions");
  }
  return vocabulary;
}

std::string vocabulary_hash(const ManifestFile& manifest) {
  std::string hashes = manifest.items.hash + manifest.users.hash;
  for (const VocabularyEntry& entry : manifest.context) hashes += entry.hash;
  return hash_text(hashes);
}

}  // namespace seqfuse::data
