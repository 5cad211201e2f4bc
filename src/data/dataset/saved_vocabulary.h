// The part of its dataset that a run saves, so that it can be served without the dataset: raw ids
// and titles of items, values of context features, names of actions, the unit of times, typical
// events. Not saved: users' ids and events.
#pragma once

#include <filesystem>
#include <memory>

#include "data/dataset/dataset.h"
#include "data/dataset/typical_events.h"
#include "data/dataset/vocabulary.h"

namespace seqfuse::data {

// Writes vocabulary.json, items.arrow and a context_N.arrow per context feature into the directory,
// atomically. Replaces an existing directory. Throws IoError.
void save_vocabulary(const Dataset& dataset, const std::filesystem::path& directory);

bool has_saved_vocabulary(const std::filesystem::path& directory);

struct SavedVocabulary {
  std::shared_ptr<const Vocabulary> vocabulary;
  TypicalEvents typical;
};

// Throws DataError naming the file and field if something is missing, damaged or inconsistent.
SavedVocabulary open_saved_vocabulary(const std::filesystem::path& directory);

}  // namespace seqfuse::data
