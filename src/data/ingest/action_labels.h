// Names of the actions of a dataset, and the label of each event's action.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/ingest/event_rows.h"
#include "data/ingest/formats.h"
#include "data/ingest/ingest.h"
#include "data/ingest/kept_histories.h"

namespace seqfuse::data {

struct ActionLabels {
  ActionKind kind = ActionKind::none;
  std::vector<std::string> names;  // per class or bit
  std::string rule;                // a sentence for the manifest
  std::vector<int64_t> index;      // label by code of IdTables::actions; empty: actions are labels

  int64_t count() const {
    const auto n = static_cast<int64_t>(names.size());
    return kind == ActionKind::bits ? int64_t{1} << n : n;
  }
  int64_t label(int32_t action) const {
    return index.empty() ? action : index[static_cast<size_t>(action)];
  }
};

// Finds values that are not numbers, as codes of IdTables::actions, in an action column of mostly
// numbers (more than half of its distinct values or of its rows). Unless bad rows are skipped,
// throws DataError that names the value and its location.
struct StrayAction {
  uint32_t code;
  int64_t events;
  std::string reason;  // "file:line: column rating is 'NA'; ..."
};
std::vector<StrayAction> stray_actions(const DatasetFormat& format, const IngestOptions& options,
                                       const Ingested& in);

// Strays get no label. Throws DataError for too many distinct values or for labels that the format
// does not know.
ActionLabels make_action_labels(const DatasetFormat& format, const IngestOptions& options,
                                const Ingested& in, const KeptHistories& histories,
                                const std::vector<StrayAction>& strays);

}  // namespace seqfuse::data
