// Moves weights between a model and a checkpoint: embedding tables, and everything else as dense.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <string>

#include "embeddings/table.h"
#include "training/checkpoint/checkpoint.h"

namespace seqfuse::training {

// The module's parameters and buffers by name, without table rows; shares storage.
TensorMap dense_weights(const torch::nn::Module& module, const embeddings::Tables& tables);

// Fills checkpoint.dense and checkpoint.tables (shared storage: save before the next step). Call
// from every process; the first one gets all table rows.
void collect_weights(const torch::nn::Module& module, const embeddings::Tables& tables,
                     Checkpoint& checkpoint);

// The first tensor with a number that is not finite, of the rows and optimiser state in `given` of tables
// whose rows are no parameters of the module: "tables.item" or "exp_avg of tables.item"; empty if there is none.
std::string table_not_finite(const embeddings::Tables& tables, const TableMap& given);

// Throws DataError unless the checkpoint has exactly the module's weights, in its shapes; names the
// weight, the given and the expected shape. options: for tables. No communication.
void check_same_weights(const torch::nn::Module& module, const embeddings::Tables& tables,
                        const Checkpoint& checkpoint, const embeddings::LoadOptions& options);

// After check_same_weights(): copies non-table weights into the module. Converts dtypes.
void load_dense(torch::nn::Module& module, const embeddings::Tables& tables,
                const Checkpoint& checkpoint);

// Loads tables from the first process's arguments. Call from every process.
void load_tables(const embeddings::Tables& tables, const TableMap& given,
                 const embeddings::LoadOptions& options);

// Loads all weights without optimiser state, in a single process, for evaluation.
void load_weights(torch::nn::Module& module, const embeddings::Tables& tables,
                  const Checkpoint& checkpoint);

}  // namespace seqfuse::training
