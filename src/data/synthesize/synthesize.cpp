#include "data/synthesize/synthesize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "base/names.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "data/synthesize/synthesize_format.h"

namespace seqfuse::data {
namespace {

using namespace synthetic;

constexpr KnownDataset kDatasets[] = {
    {"kuairand-pure", 27'285, 7'551, kuairand_pure_lengths, true, kuairand_pure_format},
    {"kuairand-1k", 1'000, 4'369'953, kuairand_1k_lengths, true, kuairand_1k_format},
    {"kuairand-27k", 27'285, 32'038'725, kuairand_27k_lengths, true, kuairand_27k_format},
    {"ml-1m", 6'040, 3'706, ml_1m_lengths, false, ml_1m_format},
};

constexpr int64_t kFewestItems = 64;
constexpr int64_t kEventsPerItem = 25;
constexpr int64_t kRowsPerTask = 32'768;  // about 3 MB of text
constexpr int64_t kTasksPerWave = 16;     // generated in parallel, then written

const KnownDataset& find_dataset(const std::string& name) {
  std::vector<std::string> names;
  for (const KnownDataset& dataset : kDatasets) {
    if (dataset.name == name) return dataset;
    names.emplace_back(dataset.name);
  }
  throw_error<UsageError>("cannot synthesize like '{}'{}: known are {}", name,
                          did_you_mean(name, names), fmt::join(names, ", "));
}

std::vector<int64_t> lengths_for(const KnownDataset& dataset, const SynthesisOptions& options) {
  const int64_t users = options.users.value_or(dataset.users);
  SEQFUSE_CHECK_AS(UsageError, users >= 1, "--users is {}; give 1 or more", users);
  SEQFUSE_CHECK_AS(UsageError, options.length_scale > 0 && options.length_scale < 1e6,
                   "--length-scale is {}; it must be positive", options.length_scale);
  SEQFUSE_CHECK_AS(UsageError, !options.events || *options.events >= users,
                   "--events is {} for {} users; each has at least 1", options.events.value_or(0),
                   users);
  return draw_lengths(dataset.lengths(), users, options.length_scale, options.events, options.seed);
}

int64_t items_for(const KnownDataset& dataset, const SynthesisOptions& options, int64_t events,
                  int64_t longest) {
  const int64_t chosen = options.items.value_or(std::max(
      kFewestItems, std::min(dataset.items, std::max(events / kEventsPerItem, 2 * longest))));
  SEQFUSE_CHECK_AS(UsageError, chosen >= kFewestItems && chosen < int64_t{1} << 40,
                   "--items is {}; give {} or more", chosen, kFewestItems);
  SEQFUSE_CHECK_AS(UsageError, dataset.repeats || chosen >= longest,
                   "{} items are too few: no user has an item twice in {}, and the longest of the "
                   "sequences has {} events; give more --items or a smaller --length-scale",
                   chosen, dataset.name, longest);
  return chosen;
}

// The output text files, written together.
class OutputFiles {
 public:
  OutputFiles(const std::filesystem::path& directory, const std::vector<FileSpec>& specs) {
    for (const FileSpec& spec : specs) {
      const auto path = directory / spec.path;
      std::filesystem::create_directories(path.parent_path());
      files_.push_back({path.string(), Handle(std::fopen(path.c_str(), "wb"))});
      if (!files_.back().handle) throw_errno(fmt::format("cannot create {}", path.string()));
      if (!spec.header.empty()) write(files_.size() - 1, spec.header + "\n");
    }
  }

  void write(size_t file, std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), files_[file].handle.get()) != text.size()) {
      throw_errno(fmt::format("cannot write {}", files_[file].path));
    }
  }

  void close() {
    for (auto& [path, handle] : files_) {
      if (std::fclose(handle.release()) != 0) throw_errno(fmt::format("cannot write {}", path));
    }
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using Handle = std::unique_ptr<std::FILE, Close>;
  struct File {
    std::string path;
    Handle handle;
  };
  std::vector<File> files_;
};

// A range of users or items whose rows one task generates.
struct Chunk {
  int64_t begin, end;
};

std::vector<Chunk> chunks_of_users(const std::vector<int64_t>& lengths) {
  std::vector<Chunk> chunks;
  int64_t rows = 0, begin = 0;
  for (int64_t user = 0; user < std::ssize(lengths); ++user) {
    rows += lengths[user];
    if (rows < kRowsPerTask && user + 1 < std::ssize(lengths)) continue;
    chunks.push_back({begin, user + 1});
    begin = user + 1;
    rows = 0;
  }
  return chunks;
}

std::vector<Chunk> chunks_of_items(int64_t items) {
  std::vector<Chunk> chunks;
  for (int64_t begin = 0; begin < items; begin += kRowsPerTask) {
    chunks.push_back({begin, std::min(items, begin + kRowsPerTask)});
  }
  return chunks;
}

// Calls make(chunk, task, buffers) for each chunk, in parallel; task < kTasksPerWave numbers those
// of one wave. Writes the buffers in order of the chunks, then calls done() for the wave.
template <class Make, class Done>
void write_chunks(const std::vector<Chunk>& chunks, size_t num_files, OutputFiles& files,
                  const Make& make, const Done& done) {
  std::vector<std::vector<std::string>> buffers(kTasksPerWave, std::vector<std::string>(num_files));
  for (int64_t first = 0; first < std::ssize(chunks); first += kTasksPerWave) {
    const int64_t tasks = std::min(kTasksPerWave, std::ssize(chunks) - first);
    parallel_tasks(tasks, [&](int64_t task) {
      for (std::string& buffer : buffers[task]) buffer.clear();
      make(chunks[first + task], task, buffers[task]);
    });
    for (int64_t task = 0; task < tasks; ++task) {
      for (size_t file = 0; file < num_files; ++file) files.write(file, buffers[task][file]);
    }
    done();
  }
}

Tally write_users(const Format& format, const std::vector<int64_t>& lengths, size_t num_files,
                  OutputFiles& files) {
  Progress progress("synthesize", "events",
                    std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
  const size_t labels = format.labels().size();
  Tally total(labels);
  std::vector<Tally> tallies(kTasksPerWave, Tally(labels));  // kept from wave to wave
  write_chunks(
      chunks_of_users(lengths), num_files, files,
      [&](const Chunk& chunk, int64_t task, std::vector<std::string>& buffers) {
        for (int64_t user = chunk.begin; user < chunk.end; ++user) {
          format.append_user(user, lengths[user], buffers, tallies[task]);
        }
      },
      [&] {
        int64_t events = 0;
        for (const Tally& tally : tallies) events += tally.events;
        progress.update(events);
      });
  for (const Tally& tally : tallies) total.add(tally);
  return total;
}

SynthesisReport make_report(const std::vector<int64_t>& lengths, int64_t items,
                            const std::vector<LabelInfo>& labels, const Tally& tally) {
  SynthesisReport report;
  report.users = std::ssize(lengths);
  report.items = items;
  report.events = tally.events;
  auto sorted = lengths;
  std::ranges::sort(sorted);
  report.shortest = sorted.front();
  report.median = sorted[sorted.size() / 2];
  report.longest = sorted.back();
  report.transition_rate =
      static_cast<double>(tally.transitions) / static_cast<double>(tally.events);
  for (size_t i = 0; i < labels.size(); ++i) {
    report.labels.push_back(
        {labels[i].name, labels[i].learnable, tally.labels[i].base_rate(), tally.labels[i].auc()});
  }
  return report;
}

std::string to_json(const SynthesisOptions& options, const SynthesisReport& report) {
  nlohmann::ordered_json json = {{"like", options.like},
                                 {"seed", options.seed},
                                 {"users", report.users},
                                 {"items", report.items},
                                 {"events", report.events},
                                 {"shortest", report.shortest},
                                 {"median", report.median},
                                 {"longest", report.longest},
                                 {"transition_rate", report.transition_rate}};
  for (const LabelReport& label : report.labels) {
    json["labels"].push_back({{"name", label.name},
                              {"learnable", label.learnable},
                              {"base_rate", label.base_rate},
                              {"oracle_auc", label.oracle_auc}});
  }
  return json.dump(2) + "\n";
}

}  // namespace

SynthesisReport synthesize(const SynthesisOptions& options, const std::filesystem::path& output) {
  const KnownDataset& dataset = find_dataset(options.like);
  const std::vector<int64_t> lengths = lengths_for(dataset, options);
  const int64_t events = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const int64_t items = items_for(dataset, options, events, std::ranges::max(lengths));
  const World world{std::ssize(lengths), Catalogue(items, options.seed), options.seed};
  const std::unique_ptr<Format> format = dataset.format(world);
  const std::vector<FileSpec> specs = format->files();

  PendingDirectory directory(output);
  OutputFiles files(directory.path(), specs);
  const Tally tally = write_users(*format, lengths, specs.size(), files);
  write_chunks(
      chunks_of_items(items), specs.size(), files,
      [&](const Chunk& chunk, int64_t, std::vector<std::string>& buffers) {
        format->append_items(chunk.begin, chunk.end, buffers.back());
      },
      [] {});
  files.close();
  const SynthesisReport report = make_report(lengths, items, format->labels(), tally);
  write_file_atomically(directory.path() / "synthesis.json", to_json(options, report));
  directory.commit();
  return report;
}

}  // namespace seqfuse::data
