#include "data/dataset/saved_vocabulary.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "data/dataset/arrow_files.h"
#include "data/dataset/id_column.h"
#include "data/dataset/manifest.h"

namespace seqfuse::data {
namespace fs = std::filesystem;
namespace {

constexpr const char* kFile = "vocabulary.json";
constexpr std::string_view kUseDataset = "give the dataset that the run was trained on with --data";

using Text = std::function<std::string(int64_t)>;  // of a row, from 0

class VocabularyFiles final : public Vocabulary {
 public:
  VocabularyFiles(const fs::path& directory, const VocabularyFile& file) {
    directory_ = directory;
    manifest_ = file.summary;
    items_ = IdColumn(directory, file.items, kUseDataset);
    for (const VocabularyEntry& entry : file.context) {
      context_.emplace_back(directory, entry, kUseDataset);
    }
  }

  std::string item_id(int64_t item) const override { return std::string(items_.id(item - 1)); }
  std::string item_title(int64_t item) const override {
    return std::string(items_.title(item - 1));
  }
  std::optional<int64_t> find_item(std::string_view id) const override { return index(items_, id); }
  std::string context_value(int64_t feature, int64_t value) const override {
    return std::string(context_[static_cast<size_t>(feature)].id(value - 1));
  }
  std::optional<int64_t> find_context(int64_t feature, std::string_view value) const override {
    return index(context_[static_cast<size_t>(feature)], value);
  }

 private:
  static std::optional<int64_t> index(const IdColumn& ids, std::string_view id) {
    const auto row = ids.find(id);
    if (!row) return std::nullopt;
    return *row + 1;
  }

  IdColumn items_;
  std::vector<IdColumn> context_;  // per feature
};

VocabularyEntry write_ids(const fs::path& directory, const std::string& file, int64_t size,
                          const Text& id, const Text& title = nullptr) {
  return {.file = file, .size = size, .hash = write_vocabulary(directory / file, size, id, title)};
}

bool has_titles(const Dataset& dataset) {
  for (int64_t item = 1; item <= dataset.num_items(); ++item) {
    if (!dataset.item_title(item).empty()) return true;
  }
  return false;
}

}  // namespace

void save_vocabulary(const Dataset& dataset, const fs::path& directory) {
  PendingDirectory pending(directory);
  VocabularyFile file{.summary = dataset.manifest(), .typical = TypicalEvents::of(dataset)};
  const Text title = [&](int64_t row) { return dataset.item_title(row + 1); };
  file.items = write_ids(
      pending.path(), "items.arrow", dataset.num_items(),
      [&](int64_t row) { return dataset.item_id(row + 1); }, has_titles(dataset) ? title : nullptr);
  for (const ContextFeature& feature : dataset.manifest().context) {
    const auto f = static_cast<int64_t>(file.context.size());
    file.context.push_back(
        write_ids(pending.path(), fmt::format("context_{}.arrow", f), feature.vocab_size - 1,
                  [&](int64_t row) { return dataset.context_value(f, row + 1); }));
  }
  write_file_atomically(pending.path() / kFile, vocabulary_to_json(file));
  pending.commit();
}

bool has_saved_vocabulary(const fs::path& directory) {
  std::error_code ignored;
  return fs::exists(directory / kFile, ignored);
}

SavedVocabulary open_saved_vocabulary(const fs::path& directory) {
  const fs::path path = directory / kFile;
  const VocabularyFile file = vocabulary_from_json(read_file(path), path.string());
  return {std::make_shared<VocabularyFiles>(directory, file), file.typical};
}

}  // namespace seqfuse::data
