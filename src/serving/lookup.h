// The vocabulary and dataset that a request is resolved with.
#pragma once

#include "data/dataset/dataset.h"
#include "data/dataset/typical_events.h"
#include "data/dataset/vocabulary.h"

namespace seqfuse::serving {

// Non-owning references.
struct Lookup {
  const data::Vocabulary& vocabulary;
  const data::Dataset* dataset;  // the users' histories, or null
  data::TypicalEvents typical;

  Lookup(const data::Vocabulary& of_items, const data::Dataset* of_users,
         const data::TypicalEvents& events)
      : vocabulary(of_items), dataset(of_users), typical(events) {}
  // All of it in one dataset.
  Lookup(const data::Dataset& all)  // NOLINT: a dataset is such a lookup
      : Lookup(all, &all, data::TypicalEvents::of(all)) {}
};

}  // namespace seqfuse::serving
