// The file of an embedding table in a checkpoint. tables/NAME.safetensors contains
//   NAME        [n, D]    rows
//   NAME.ids    int64 [n] their ids; absent if these are 0..n - 1 in order
//   NAME.STATE  [n, ...]  the optimiser's state of the rows, "NAME.exp_avg"
#pragma once

#include <string>

#include "embeddings/table_contents.h"
#include "models/files/tensor_map.h"

namespace seqfuse::training {

using models::TensorMap;

TensorMap to_tensors(const std::string& table, const embeddings::TableContents& contents);

// file: for messages. Throws DataError for tensors that do not belong to the table, or missing
// rows.
embeddings::TableContents to_contents(const std::string& table, const TensorMap& tensors,
                                      const std::string& file);

// Moves the table's state out of a format 1 checkpoint's optimizer.safetensors, where it is named
// "tables.NAME.STATE".
void take_table_state(TensorMap& optimizer, const std::string& table,
                      embeddings::TableContents& contents);

}  // namespace seqfuse::training
