// Rows that a table has fetched for the ids of a batch.
#pragma once

#include <torch/types.h>

#include <string>

namespace seqfuse::embeddings {

// Rows of ids [T], from rows [n, D] of the ascending ids known [n]; differentiable in rows. Throws if
// nothing was fetched (rows is undefined) and, on the CPU, for an id that is not known; on a GPU that
// check would synchronise. table: its name, for messages.
at::Tensor lookup_fetched(const std::string& table, const at::Tensor& rows, const at::Tensor& known,
                          const at::Tensor& ids);

}  // namespace seqfuse::embeddings
