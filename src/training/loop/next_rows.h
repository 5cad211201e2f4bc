// Rows of the next batch, on their way while this one computes.
#pragma once

#include "embeddings/table.h"
#include "models/hstu/windows.h"

namespace seqfuse::training {

// Starts to bring the rows that the next batch reads into the caches of the tables of an HSTU model that
// have one (DynamicEmbeddingArgs.caching); sampled negatives are not known yet. next: null if this process has no part of that batch. With several processes
// all must call it at the same point of a step.
void prefetch_rows(const embeddings::Tables& tables, const models::hstu::Windows* next);

}  // namespace seqfuse::training
