// A run's saved vocabulary, read back.
#include "data/dataset/saved_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "tests/temporary_directory.h"
#include "tests/unit/memory_dataset.h"

namespace seqfuse::data::saved_vocabulary_test {
namespace {
namespace fs = std::filesystem;
using testing::HasSubstr;

// Three users; item ids are numbers, titles "Item 1", ...; actions are classes with names.
class NamedDataset : public MemoryDataset {
 public:
  NamedDataset() : MemoryDataset(MemoryDataset::of_lengths({12, 3, 5})) {
    manifest_.action_names = {"bad", "good"};
    manifest_.time_units_per_second = 1000;
    manifest_.hash = "xxh3:1";
    manifest_.context.push_back({"country", 3});
  }
  std::string context_value(int64_t feature, int64_t value) const override {
    if (feature == 0) return MemoryDataset::context_value(feature, value);
    return value == 1 ? "de" : "fr";
  }
};

std::string refused(const std::function<void()>& call) {
  try {
    call();
  } catch (const DataError& error) {
    return error.what();
  }
  return "nothing";
}

class SavedVocabularyTest : public testing::Test {
 protected:
  fs::path path() const { return directory_.path() / "vocabulary"; }

  const NamedDataset dataset_;
  const TemporaryDirectory directory_;
};

TEST_F(SavedVocabularyTest, ReadsBackAsItWas) {
  EXPECT_FALSE(has_saved_vocabulary(path()));
  save_vocabulary(dataset_, path());
  ASSERT_TRUE(has_saved_vocabulary(path()));
  const SavedVocabulary saved = open_saved_vocabulary(path());
  const Vocabulary& vocabulary = *saved.vocabulary;
  const Manifest &manifest = vocabulary.manifest(), &expected = dataset_.manifest();
  EXPECT_EQ(manifest.dataset_name, expected.dataset_name);
  EXPECT_EQ(manifest.num_items, 12);
  EXPECT_EQ(manifest.has_timestamps, true);
  EXPECT_EQ(manifest.time_units_per_second, 1000);
  EXPECT_EQ(manifest.action_kind, ActionKind::classes);
  EXPECT_EQ(manifest.num_actions, 2);
  EXPECT_EQ(manifest.action_names, expected.action_names);
  EXPECT_EQ(manifest.hash, expected.hash);
  ASSERT_EQ(manifest.context.size(), 2U);
  EXPECT_EQ(manifest.context[1].name, "country");
  EXPECT_EQ(manifest.context[1].vocab_size, 3);
  EXPECT_EQ(saved.typical.gap, 10);
  EXPECT_EQ(saved.typical.action, 0);
  for (int64_t item = 1; item <= 12; ++item) {
    EXPECT_EQ(vocabulary.item_id(item), std::to_string(item));
    EXPECT_EQ(vocabulary.item_title(item), dataset_.item_title(item));
    EXPECT_EQ(vocabulary.find_item(std::to_string(item)), item);
  }
  EXPECT_FALSE(vocabulary.find_item("13").has_value());
  EXPECT_FALSE(vocabulary.find_item("").has_value());
  EXPECT_EQ(vocabulary.find_context(0, "3"), 3);
  EXPECT_EQ(vocabulary.find_context(1, "fr"), 2);
  EXPECT_EQ(vocabulary.context_value(1, 1), "de");
  EXPECT_FALSE(vocabulary.find_context(1, "it").has_value());
}

TEST_F(SavedVocabularyTest, DamagedFilesAreNamed) {
  save_vocabulary(dataset_, path());
  for (const std::string file : {"items.arrow", "context_1.arrow"}) {
    const std::string whole = read_file(path() / file);
    std::string content = whole;
    content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 1);
    write_file_atomically(path() / file, content);
    const std::string message = refused([&] { open_saved_vocabulary(path()); });
    EXPECT_THAT(message, HasSubstr(file));
    EXPECT_THAT(message, HasSubstr("--data"));
    fs::remove(path() / file);
    EXPECT_THAT(refused([&] { open_saved_vocabulary(path()); }), HasSubstr("is missing"));
    write_file_atomically(path() / file, whole);
  }
  const std::string json = read_file(path() / "vocabulary.json");
  for (const auto& [text, other, message] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"\"num_items\": 12", "\"num_items\": 13", "item_vocabulary.size"},
           {"\"typical_action\": 0", "\"typical_action\": 2", "typical_action"},
           {"\"format_version\": 1", "\"format_version\": 9", "format_version is 9"},
           {"\"typical_gap\": 10,", "", "typical_gap is missing"},
           {"}", "", "not valid JSON"}}) {
    std::string edited = json;
    ASSERT_NE(edited.find(text), std::string::npos) << text;
    edited.replace(edited.find(text), text.size(), other);
    write_file_atomically(path() / "vocabulary.json", edited);
    const std::string refusal = refused([&] { open_saved_vocabulary(path()); });
    EXPECT_THAT(refusal, HasSubstr(message));
    EXPECT_THAT(refusal, HasSubstr("vocabulary.json"));
  }
}

}  // namespace
}  // namespace seqfuse::data::saved_vocabulary_test
