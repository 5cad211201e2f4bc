#include "data/ingest/reading_record.h"

#include <fmt/ranges.h>

#include "data/ingest/extension.h"

namespace seqfuse::data {
namespace {

std::string order_rule(const Reading& reading) {
  if (reading.histories.keep_file_order) {
    return fmt::format(
        "Each user's events keep their order in the file; {} blank times were placed between their "
        "neighbours; {} decreasing times were raised to the previous one.",
        reading.counts.blank_times, reading.counts.out_of_order);
  }
  if (reading.in.has_time) {
    return fmt::format(
        "Each user's events are sorted by time; equal times keep their order in the file. {} "
        "events were earlier than one before them in the file.",
        reading.counts.out_of_order);
  }
  return "The log has no time: each user's events keep their order in the file.";
}

// The value of --format.
const char* format_name(const Reading& reading) {
  switch (reading.options.ingest.kind) {
    case InputKind::processed_seqs:
      return "processed-seqs";
    case InputKind::item_lines:
      return "sasrec";
    case InputKind::log:
      break;
  }
  return reading.format.table.typed_header ? "recbole" : "log";
}

}  // namespace

std::vector<std::string> reading_rules(const Reading& reading) {
  const Ingested& in = reading.in;
  std::vector<std::string> rules = {order_rule(reading)};
  if (reading.options.ingest.given_split) {
    rules.emplace_back(
        "Given split: each user's last event is the test file's, the one before it the validation "
        "file's; split leave_one_out gives these parts.");
  }
  if (reading.options.deduplicate) {
    rules.push_back(fmt::format(
        "{} events equal to an earlier one in user, item, action and time were dropped.",
        reading.counts.duplicates));
  } else {
    rules.emplace_back("Duplicate events are kept.");
  }
  if (in.bad_rows > 0) {
    rules.push_back(fmt::format("{} malformed rows of {} were skipped.", in.bad_rows, in.rows));
  }
  if (!in.not_read.empty()) {
    const char* why = reading.options.ingest.given_split ? "names or endings" : "endings";
    rules.push_back(
        fmt::format("Not read because of their {}: {}.", why, fmt::join(in.not_read, ", ")));
  }
  rules.emplace_back(
      "Indices of users, items and context values: 1, 2, ... by raw id, integers ascending before "
      "other ids bytewise; 0 is unknown. Users without events are left out.");
  if (in.context_conflicts > 0) {
    rules.push_back(
        fmt::format("A user's context is that of the user's first row; {} rows differed from it.",
                    in.context_conflicts));
  }
  return rules;
}

IngestRecord ingest_record(const Reading& reading) {
  const DatasetFormat& format = reading.format;
  const PreprocessOptions& options = reading.options;
  const Ingested& in = reading.in;
  const ReadingFacts facts = {
      .filtered = options.min_user_events > 1 || options.min_item_events > 1,
      .joined = format.joins_logs,
      .given_split = options.ingest.given_split,
      .fractions = in.events.has_fractions(),
      .blank_times = reading.counts.blank_times > 0,
      .strays_skipped = in.bad_rows > 0 && format.action_rule == ActionRule::values};
  const bool from_flags = format.from_flags && format.titles;
  return {.format = format_name(reading),
          .user_column = format.user_column,
          .item_column = format.item_column,
          .time_column = in.has_time ? format.time_column : "",
          .action_columns = format.action_columns,
          .title_file = from_flags ? format.titles->file.prefix : "",
          .title_column = from_flags ? format.titles->title_column : "",
          .blank_time_between = options.ingest.blank_time == BlankTime::between,
          .deduplicate = options.deduplicate,
          .has_time_unit = in.units_per_second.has_value(),
          .rows = in.rows,
          .bad_rows = in.bad_rows,
          .context_conflicts = in.context_conflicts,
          .out_of_order = reading.counts.out_of_order,
          .duplicates = reading.counts.duplicates,
          .not_read = in.not_read,
          .cannot_extend = why_not_extendable(facts)};
}

}  // namespace seqfuse::data
