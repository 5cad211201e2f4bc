// seqfuse preprocess: converts raw interaction logs to a dataset directory.
#include <fmt/ranges.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "cli/command_line.h"
#include "cli/preprocess_flags.h"
#include "cli/verbs.h"
#include "data/dataset/processed_seqs.h"
#include "data/ingest/dry_run.h"
#include "data/ingest/extension.h"
#include "data/ingest/preprocess.h"

namespace seqfuse::cli {
namespace {

void print_result(const data::PreprocessResult& result, const std::string& output, double seconds) {
  const data::Manifest& summary = result.manifest.summary;
  const data::LengthStatistics& lengths = result.manifest.lengths;
  if (result.bad_rows > 0) {
    log::warning("preprocess", "{} malformed rows of {} skipped; the first:", result.bad_rows,
                 result.rows);
    for (const std::string& bad : result.bad_examples) log::warning("preprocess", "  {}", bad);
  }
  if (!result.not_read.empty()) {
    log::warning("preprocess", "not read because of their endings: {}",
                 fmt::join(result.not_read, ", "));
  }
  fmt::print("{}: {} users, {} items, {} events\n", summary.dataset_name, summary.num_users,
             summary.num_items, summary.num_events);
  fmt::print("events per user: min {}, mean {:.1f}, median {}, max {}\n", lengths.min, lengths.mean,
             lengths.median, lengths.max);
  for (const data::ContextFeature& feature : summary.context) {
    fmt::print("context {}: {} values\n", feature.name, feature.vocab_size - 1);
  }
  for (const std::string& rule : result.manifest.rules) fmt::print("rule: {}\n", rule);
  fmt::print("{} rows in {}, {} rows/s\nwritten to {}\n", result.rows, format_duration(seconds),
             format_count(static_cast<double>(result.rows) / seconds), output);
}

void print_growth(const data::Manifest& before, const data::Manifest& after,
                  const std::string& dataset) {
  fmt::print("extended {}: {} new users, {} new items, {} new events\n", dataset,
             after.num_users - before.num_users, after.num_items - before.num_items,
             after.num_events - before.num_events);
}

// The columns and first rows. Throws DataError where preprocess would, after showing them.
int look(const data::DatasetFormat& format, const data::IngestOptions& options) {
  const data::DryRun found = data::dry_run(format, options);
  fmt::print("{}", found.report);
  if (!found.error.empty()) throw DataError(found.error);
  fmt::print("nothing was written (--dry-run)\n");
  return 0;
}

}  // namespace

int cmd_preprocess(int argc, char** argv) {
  CLI::App app("Converts raw interaction logs to a dataset directory.", "preprocess");
  PreprocessFlags f;
  declare_preprocess_flags(app, f);
  if (const auto code = parse_arguments(app, argc, argv)) return *code;
  if (f.threads > 0) set_num_threads(f.threads);

  for (std::string* folder : {&f.output, &f.extend}) {
    while (folder->size() > 1 && folder->ends_with('/')) folder->pop_back();
  }
  std::optional<data::Manifest> before;
  if (!f.extend.empty()) {
    const data::ManifestFile manifest = data::extendable_manifest(f.extend);
    adopt_record(app, manifest, f);
    before = manifest.summary;
    if (f.output.empty()) {
      f.output = f.extend;
      f.force = true;
    }
  }
  const data::DatasetFormat format = format_of(f);
  const data::PreprocessOptions options = options_of(f);
  if (f.dry_run) return look(format, options.ingest);
  if (f.output.empty()) {
    throw_error<UsageError>(
        "--output is required: the dataset directory to make\n  --dry-run looks at the input only");
  }

  const auto start = std::chrono::steady_clock::now();
  const data::PreprocessResult result = data::preprocess(format, options);
  if (!f.write_processed_seqs.empty()) {
    data::write_processed_seqs(*data::Dataset::open(f.output), f.write_processed_seqs);
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  if (before) print_growth(*before, result.manifest.summary, f.extend);
  print_result(result, f.output, elapsed.count());
  return 0;
}

}  // namespace seqfuse::cli
