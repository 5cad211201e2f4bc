// The record of how preprocess read a log: sentences for people, and values that --extend needs.
#pragma once

#include <string>
#include <vector>

#include "data/dataset/manifest.h"
#include "data/ingest/formats.h"
#include "data/ingest/ingest.h"
#include "data/ingest/preprocess.h"
#include "data/ingest/user_history.h"

namespace seqfuse::data {

struct Reading {
  const DatasetFormat& format;
  const PreprocessOptions& options;
  const Ingested& in;
  HistoryOptions histories;
  HistoryCounts counts;
};

// One rule a sentence.
std::vector<std::string> reading_rules(const Reading& reading);

IngestRecord ingest_record(const Reading& reading);

}  // namespace seqfuse::data
