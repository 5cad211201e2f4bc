// Warnings about a log that is probably not what its owner meant.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/ingest/column_survey.h"
#include "data/ingest/formats.h"
#include "data/ingest/ingest.h"

namespace seqfuse::data {

// Counts of the events that were read.
struct EventSummary {
  int64_t events = 0, users = 0, items = 0;
  int64_t duplicates = 0;   // equal to an earlier one in user, item, action and time
  int64_t most_events = 0;  // of one user
  std::string busiest_user;
  std::optional<Time> first, last;  // none without times
};
EventSummary summarize(Ingested& in);

// "seconds", "milliseconds", "microseconds" or "nanoseconds": the unit in which a time since 1970
// lies between 1973 and 5138; "" if there is none. units: how many make a second.
std::string likely_unit(double time, int64_t& units);

// A sentence each, the gravest first. in: after summarize().
std::vector<std::string> suspicions(const DatasetFormat& format, const IngestOptions& options,
                                    const ColumnSurvey& survey, const Ingested& in,
                                    const EventSummary& summary);

}  // namespace seqfuse::data
