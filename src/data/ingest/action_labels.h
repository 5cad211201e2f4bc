// What the actions of a data set are called, and the label of each event's action.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/ingest/event_rows.h"
#include "data/ingest/formats.h"
#include "data/ingest/history_pass.h"
#include "data/ingest/ingest.h"

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

// The values of an action column that is mostly numbers which are none, as codes of
// IdTables::actions: more than half of its distinct values or of its rows are numbers. Where these
// rows are not to be skipped, throws DataError that names the value and where it stands.
struct StrayAction {
  uint32_t code;
  int64_t events;
  std::string reason;  // "file:line: column rating is 'NA'; ..."
};
std::vector<StrayAction> stray_actions(const DatasetFormat& format, const IngestOptions& options,
                                       const Ingested& in);

// Strays have no label. Throws DataError: too many distinct values, or labels that the format does
// not have.
ActionLabels make_action_labels(const DatasetFormat& format, const IngestOptions& options,
                                const Ingested& in, const HistoryPass& pass,
                                const std::vector<StrayAction>& strays);

}  // namespace seqfuse::data
