// Reads the files of --only and --exclude: lists of items.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset/vocabulary.h"

namespace seqfuse::serving {

struct ItemList {
  std::vector<int64_t> items;  // ascending, each once
  int64_t unknown = 0;         // ids that the vocabulary does not have
  std::string first_unknown;
};

// Reads ids: a line each (.txt), a column item or item_id, or the only one (.csv, .tsv, .parquet), or a
// field of that name (.jsonl). Throws UsageError, DataError or IoError.
ItemList read_item_list(const std::string& file, const data::Vocabulary& vocabulary);

// All items of the vocabulary but these (ascending, each once).
std::vector<int64_t> all_but(const data::Vocabulary& vocabulary, const std::vector<int64_t>& items);

}  // namespace seqfuse::serving
