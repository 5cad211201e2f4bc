// Between a model's weights and a checkpoint: embedding tables are apart, everything else is dense.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include "embeddings/table.h"
#include "training/checkpoint/checkpoint.h"

namespace seqfuse::training {

// The module's parameters and buffers by name, without the rows of tables: shared storage.
TensorMap dense_weights(const torch::nn::Module& module, const embeddings::Tables& tables);

// Fills checkpoint.dense and checkpoint.tables (shared storage: save before the next step). Every
// process calls it; the first one gets all rows of the tables.
void collect_weights(const torch::nn::Module& module, const embeddings::Tables& tables,
                     Checkpoint& checkpoint);

// Throws DataError unless the checkpoint has every weight, with the module's shape, and no other:
// names the weight, the shape given and the shape expected. options: of tables. No exchange.
void check_same_weights(const torch::nn::Module& module, const embeddings::Tables& tables,
                        const Checkpoint& checkpoint, const embeddings::LoadOptions& options);

// After check_same_weights(): copies weights that are not tables into the module. dtypes are converted.
void load_dense(torch::nn::Module& module, const embeddings::Tables& tables,
                const Checkpoint& checkpoint);

// Loads tables from the arguments of the first process. Every process calls it.
void load_tables(const embeddings::Tables& tables, const TableMap& given,
                 const embeddings::LoadOptions& options);

// Loads all weights without optimiser state, in a single process: for evaluation.
void load_weights(torch::nn::Module& module, const embeddings::Tables& tables,
                  const Checkpoint& checkpoint);

}  // namespace seqfuse::training
