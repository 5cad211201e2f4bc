// Weights for a catalogue that has grown: the rows of a checkpoint found again by raw id in a data
// set that has all ids of the one it was trained on, and more.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/dataset/vocabulary.h"
#include "models/hstu/model_spec.h"
#include "training/checkpoint/checkpoint.h"

namespace seqfuse::training {

struct TableGrowth {
  std::string table;
  int64_t kept = 0;   // rows of the checkpoint, with their optimiser state
  int64_t added = 0;  // rows of new ids: the checkpoint has none for them
};

// Renumbers the rows of the checkpoint's tables, with their optimiser state: from the indices of
// `before`, its own vocabulary, to those that the same raw ids have in `now`, the data set of the new
// model. The checkpoint's model description then has the sizes of the new model, `spec`. Load it with
// LoadOptions.all_ids = false: rows of new ids keep their initial values.
//
// Throws DataError that says what changed: items, values of a context feature or actions that `now`
// lacks (how many, and the first few), other features, another kind of actions, classes or bits with
// other labels where the model predicts or adds them up.
std::vector<TableGrowth> move_to_vocabulary(Checkpoint& checkpoint, const data::Vocabulary& before,
                                            const data::Vocabulary& now,
                                            const models::hstu::ModelSpec& spec);

// The same where ids, values or actions differ from the vocabulary saved in the run. Empty where they
// do not, and where the run has none: loading then fails, because indices cannot be compared.
std::vector<TableGrowth> move_to_vocabulary(Checkpoint& checkpoint,
                                            const std::filesystem::path& saved_vocabulary,
                                            const data::Vocabulary& now,
                                            const models::hstu::ModelSpec& spec);

// "table item: 9724 rows kept, 12 new; table user_id: ..."
std::string growth_text(const std::vector<TableGrowth>& growth);

}  // namespace seqfuse::training
