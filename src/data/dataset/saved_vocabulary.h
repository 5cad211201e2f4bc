// What a run keeps of the dataset that it was trained on, so that it can be served without it: raw
// ids and titles of items, values of context features, names of actions, the unit of times, typical
// events. Users' ids and events are not kept.
#pragma once

#include <filesystem>
#include <memory>

#include "data/dataset/dataset.h"
#include "data/dataset/typical_events.h"
#include "data/dataset/vocabulary.h"

namespace seqfuse::data {

// The directory holds vocabulary.json, items.arrow and a context_N.arrow for each context feature.
// It is there whole or not at all; one that is there is replaced. Throws IoError.
void save_vocabulary(const Dataset& dataset, const std::filesystem::path& directory);

bool has_saved_vocabulary(const std::filesystem::path& directory);

struct SavedVocabulary {
  std::shared_ptr<const Vocabulary> vocabulary;
  TypicalEvents typical;
};

// Throws DataError naming the file and field when something is missing, damaged or inconsistent.
SavedVocabulary open_saved_vocabulary(const std::filesystem::path& directory);

}  // namespace seqfuse::data
