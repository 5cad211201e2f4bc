// Adding new events to a data set: its events are read back from its own files, not from the old
// log, and the result has the bytes that preprocessing the old and the new log together would have.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset/dataset.h"
#include "data/dataset/manifest.h"
#include "data/ingest/formats.h"
#include "data/ingest/ingest.h"
#include "data/ingest/user_history.h"

namespace seqfuse::data {

// Why a data set that was read in this way cannot be extended to what all logs together would give;
// "" if it can.
struct ReadingFacts {
  bool filtered = false;        // --min-user-events or --min-item-events
  bool joined = false;          // users were looked up in all log files
  bool given_split = false;     // its parts would no longer be at the end
  bool fractions = false;       // of times: the data set keeps whole units only
  bool blank_times = false;     // filled in from neighbours
  bool strays_skipped = false;  // rows without an event that decided what an action is
};
std::string why_not_extendable(const ReadingFacts& facts);

// The manifest of a data set that can be extended. Throws DataError that names the data set and why
// not, and UsageError where there is none.
ManifestFile extendable_manifest(const std::filesystem::path& dataset);

class Extension {
 public:
  // Throws DataError if the data set is damaged, and as extendable_manifest().
  explicit Extension(const std::filesystem::path& dataset);

  // Puts its ids, events, features and counts into out, as reading its log did. The format is that
  // of the data set.
  void ingest(const DatasetFormat& format, Ingested& out) const;
  // Counts of the histories of the old log.
  HistoryCounts counts() const;

  // in: the sources recorded by ingest() and then by the new log. Throws DataError if a new log is
  // already a source of the dataset. Otherwise removes old sources that were read again: tables of
  // users and titles.
  void settle_sources(Ingested& in) const;

 private:
  void ingest_context(const DatasetFormat& format, Ingested& out) const;
  std::vector<uint32_t> action_codes(const DatasetFormat& format, Ingested& out) const;

  ManifestFile manifest_;
  std::shared_ptr<const Dataset> dataset_;
};

}  // namespace seqfuse::data
