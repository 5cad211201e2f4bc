#include "data/dataset/dataset.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "data/dataset/arrow_files.h"
#include "data/dataset/file_blocks.h"
#include "data/dataset/id_column.h"
#include "data/dataset/manifest.h"
#include "data/dataset/parquet_dataset.h"
#include "data/dataset/sample.h"

namespace seqfuse::data {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPreprocessAgain = "run `seqfuse preprocess` again";

struct Shard {
  int64_t first_row = 0;
  std::shared_ptr<arrow::RecordBatch> batch;  // keeps the file mapped
  std::shared_ptr<arrow::ListArray> items, actions, timestamps;
  std::vector<const int64_t*> context;

  std::unique_ptr<FileBlocks> blocks;    // of the file
  std::shared_ptr<arrow::Buffer> bytes;  // the whole file, mapped
};

// Collects the file blocks to check, each once.
class BlocksToCheck {
 public:
  template <class T>
  void add(const Shard& shard, const T* values, int64_t count) {
    const int64_t begin = reinterpret_cast<const uint8_t*>(values) - shard.bytes->data();
    const int64_t end = begin + count * static_cast<int64_t>(sizeof(T));
    // make_batch() refuses windows outside their user's events.
    if (count <= 0 || begin < 0 || end > shard.bytes->size()) return;
    for (int64_t b = begin / FileBlocks::kBlock; b * FileBlocks::kBlock < end; ++b) {
      blocks_.emplace_back(shard.blocks.get(), b);
    }
  }

  void check() {
    std::sort(blocks_.begin(), blocks_.end());
    blocks_.erase(std::unique(blocks_.begin(), blocks_.end()), blocks_.end());
    for (const auto& [file, block] : blocks_) file->check(block);
    blocks_.clear();
  }

 private:
  std::vector<std::pair<const FileBlocks*, int64_t>> blocks_;
};

std::span<const int64_t> list_values(const std::shared_ptr<arrow::ListArray>& lists, int64_t row) {
  if (!lists) return {};
  const int64_t* values = static_cast<const arrow::Int64Array&>(*lists->values()).raw_values();
  return {values + lists->value_offset(row), static_cast<size_t>(lists->value_length(row))};
}

class ArrowDataset final : public Dataset {
 public:
  explicit ArrowDataset(const fs::path& directory) {
    directory_ = directory;
    const fs::path manifest_file = directory / "manifest.json";
    if (!fs::exists(manifest_file)) {
      throw_error<DataError>(
          "{} is not a dataset: it has no manifest.json\n"
          "  `seqfuse preprocess --output {}` makes one",
          directory.string(), directory.string());
    }
    const ManifestFile file = manifest_from_json(read_file(manifest_file), manifest_file.string());
    manifest_ = file.summary;
    items_ = IdColumn(directory, file.items, kPreprocessAgain);
    users_ = IdColumn(directory, file.users, kPreprocessAgain);
    for (const VocabularyEntry& entry : file.context)
      context_.emplace_back(directory, entry, kPreprocessAgain);
    shards_.resize(file.shards.size());
    int64_t row = 0;
    for (size_t s = 0; s < shards_.size(); ++s) {
      shards_[s].first_row = row;
      row += file.shards[s].rows;
    }
    parallel_tasks(static_cast<int64_t>(shards_.size()), [&](int64_t s) {
      open_shard(file.shards[static_cast<size_t>(s)], shards_[static_cast<size_t>(s)]);
    });
  }

  UserSequence user(int64_t row) const override {
    const Shard& shard = shard_of(row);
    const int64_t local = row - shard.first_row;
    return {list_values(shard.items, local), list_values(shard.actions, local),
            list_values(shard.timestamps, local)};
  }

  int64_t context(int64_t feature, int64_t row) const override {
    const Shard& shard = shard_of(row);
    return shard.context[static_cast<size_t>(feature)][row - shard.first_row];
  }

  void check_unchanged(const Sample* samples, int64_t count) const override {
    constexpr int64_t kSamplesAtOnce = 4096;  // bounds memory use
    for (; count > kSamplesAtOnce; samples += kSamplesAtOnce, count -= kSamplesAtOnce) {
      check_unchanged(samples, kSamplesAtOnce);
    }
    BlocksToCheck blocks;
    const auto for_each_list = [&](auto&& visit) {
      for (const Sample& sample : std::span(samples, static_cast<size_t>(count))) {
        const Shard& shard = shard_of(sample.user);
        for (const arrow::ListArray* lists :
             {shard.items.get(), shard.actions.get(), shard.timestamps.get()}) {
          if (lists != nullptr) visit(shard, *lists, sample.user - shard.first_row, sample);
        }
      }
    };
    // Check the offsets of a user's events before using them.
    for_each_list([&](const Shard& shard, const arrow::ListArray& lists, int64_t row, auto&) {
      blocks.add(shard, lists.raw_value_offsets() + row, 2);
      for (const int64_t* values : shard.context) blocks.add(shard, values + row, 1);
    });
    blocks.check();
    for_each_list(
        [&](const Shard& shard, const arrow::ListArray& lists, int64_t row, const Sample& sample) {
          const auto& values = static_cast<const arrow::Int64Array&>(*lists.values());
          blocks.add(shard, values.raw_values() + lists.value_offset(row) + sample.begin,
                     sample.end - sample.begin);
        });
    blocks.check();
  }

  std::string item_id(int64_t item) const override { return std::string(items_.id(item - 1)); }
  std::string item_title(int64_t item) const override {
    return std::string(items_.title(item - 1));
  }
  std::string user_id(int64_t row) const override { return std::string(users_.id(row)); }
  std::optional<int64_t> find_user(std::string_view id) const override { return users_.find(id); }
  std::optional<int64_t> find_item(std::string_view id) const override {
    const auto row = items_.find(id);
    if (!row) return std::nullopt;
    return *row + 1;
  }
  std::string context_value(int64_t feature, int64_t value) const override {
    return std::string(context_[static_cast<size_t>(feature)].id(value - 1));
  }
  std::optional<int64_t> find_context(int64_t feature, std::string_view value) const override {
    const auto row = context_[static_cast<size_t>(feature)].find(value);
    if (!row) return std::nullopt;
    return *row + 1;
  }

 private:
  void open_shard(const ShardEntry& entry, Shard& shard) const {
    const fs::path path = directory_ / entry.file;
    const std::string name = path.string();
    check_exists(path, kPreprocessAgain);
    shard.blocks = std::make_unique<FileBlocks>(path);
    check_hash(path, shard.blocks->hash(), entry.hash, kPreprocessAgain);
    const auto batches = map_arrow_file(path, &shard.bytes);
    if (batches.size() != 1 || batches[0]->num_rows() != entry.rows) {
      throw_error<DataError>("{}: expected one record batch of {} rows", name, entry.rows);
    }
    shard.batch = batches[0];
    shard.items = list_column("items", *shard.batch, name);
    if (shard.items->values()->length() != entry.events) {
      throw_error<DataError>("{} has {} events, the manifest says {}", name,
                             shard.items->values()->length(), entry.events);
    }
    if (manifest_.action_kind != ActionKind::none) {
      shard.actions = list_column("actions", *shard.batch, name);
    }
    if (manifest_.has_timestamps) shard.timestamps = list_column("timestamps", *shard.batch, name);
    for (const auto& lists : {shard.actions, shard.timestamps}) {
      if (lists &&
          !std::equal(lists->raw_value_offsets(), lists->raw_value_offsets() + entry.rows + 1,
                      shard.items->raw_value_offsets())) {
        throw_error<DataError>("{}: the list columns' lengths differ", name);
      }
    }
    for (const ContextFeature& feature : manifest_.context) {
      shard.context.push_back(
          column<arrow::Int64Array>(*shard.batch, feature.name, name)->raw_values());
    }
  }

  static std::shared_ptr<arrow::ListArray> list_column(const char* column_name,
                                                       const arrow::RecordBatch& batch,
                                                       const std::string& file) {
    auto lists = column<arrow::ListArray>(batch, column_name, file);
    if (lists->value_type()->id() != arrow::Type::INT64 || lists->values()->null_count() > 0) {
      throw_error<DataError>("{}: column {} must be list<int64> without nulls", file, column_name);
    }
    return lists;
  }

  const Shard& shard_of(int64_t row) const {
    const auto after = std::upper_bound(shards_.begin(), shards_.end(), row,
                                        [](int64_t r, const Shard& s) { return r < s.first_row; });
    return *std::prev(after);
  }

  IdColumn items_, users_;
  std::vector<IdColumn> context_;  // per feature
  std::vector<Shard> shards_;
};

}  // namespace

std::shared_ptr<const Dataset> Dataset::open(const fs::path& directory) {
  if (!fs::exists(directory / "manifest.json") && has_parquet_sequences(directory)) {
    return open_parquet_dataset(directory);
  }
  return std::make_shared<ArrowDataset>(directory);
}

}  // namespace seqfuse::data
