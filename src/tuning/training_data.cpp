#include "tuning/training_data.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "fusion/scheme_text.h"
#include "masks/block_mask.h"
#include "masks/sequence_mask.h"
#include "tuning/database.h"
#include "tuning/measurement_csv.h"

namespace seqfuse::tuning {
namespace {

constexpr std::string_view kSpace = " \t\r";
constexpr std::string_view kDatabaseMagic = "SQLite format 3";

template <class T>
bool fits(const std::optional<T>& wanted, const T& value) {
  return !wanted || *wanted == value;
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Throws Error that says what is wrong with the line.
Example example_of_line(std::string_view line, const Setting& setting) {
  const size_t end = line.find_first_of(kSpace);
  const std::string_view scheme = line.substr(0, end);
  const std::string_view time =
      end == std::string_view::npos ? std::string_view() : trimmed(line.substr(end));
  SEQFUSE_CHECK(!time.empty(), "'{}'; expected a scheme, white space and milliseconds", line);
  double milliseconds = 0;
  const auto [stop, error] = std::from_chars(time.data(), time.data() + time.size(), milliseconds);
  SEQFUSE_CHECK(error == std::errc() && stop == time.data() + time.size() &&
                    std::isfinite(milliseconds) && milliseconds > 0,
                "the time is '{}'; expected milliseconds, a finite number above 0", time);
  return {setting, fusion::Scheme::from_number(fusion::read_number(scheme)), milliseconds};
}

int64_t number_of(std::string_view text, const std::string& given) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  SEQFUSE_CHECK_AS(
      UsageError, error == std::errc() && stop == text.data() + text.size() && value >= 1,
      "predict: '{}'; expected FILE@BATCH,SEQ,MASK such as times.txt@16,1024,sliding:32", given);
  return value;
}

// The index of a setting, which is appended if it is new.
size_t index_in(std::vector<Setting>& settings, const Setting& setting) {
  const auto at = std::find(settings.begin(), settings.end(), setting);
  const auto index = static_cast<size_t>(at - settings.begin());
  if (at == settings.end()) settings.push_back(setting);
  return index;
}

bool is_database(const std::string& file) {
  if (!std::filesystem::is_regular_file(file)) return false;
  std::string head(kDatabaseMagic.size(), '\0');
  std::ifstream(file, std::ios::binary)
      .read(head.data(), static_cast<std::streamsize>(head.size()));
  return head == kDatabaseMagic || std::filesystem::path(file).extension() == ".db";
}

struct LinesFile {
  std::string file;
  Setting setting;
};

LinesFile lines_file(const std::string& given, const Selection& selection) {
  const size_t at = given.rfind('@');
  if (at == std::string::npos || std::filesystem::exists(given)) {
    return {given, setting_of_lines(selection.batch.value_or(1), selection.seq.value_or(128),
                                    selection.mask.value_or("none"))};
  }
  const std::string_view text = std::string_view(given).substr(at + 1);
  const size_t first = text.find(','),
               second = text.find(',', std::min(first, text.size() - 1) + 1);
  const bool complete = first != std::string_view::npos && second != std::string_view::npos;
  const int64_t batch = number_of(complete ? text.substr(0, first) : "", given);
  const int64_t seq = number_of(text.substr(first + 1, second - first - 1), given);
  return {given.substr(0, at), setting_of_lines(batch, seq, std::string(text.substr(second + 1)))};
}

}  // namespace

bool holds_measurements(const std::string& file) {
  if (is_database(file)) return true;
  if (!std::filesystem::is_regular_file(file)) return false;
  std::string head(4096, '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  return is_measurement_csv(head);
}

std::vector<Measurement> read_measurements(const std::string& file) {
  if (is_database(file)) return Database(file, Database::Access::read).measurements();
  return read_csv(file);
}

bool Selection::takes(const Setting& s) const {
  return fits(model, s.model) && fits(mask, s.mask) && fits(dtype, s.dtype) &&
         fits(batch, s.batch) && fits(seq, s.seq);
}

double density_of(const std::string& mask, int64_t seq) {
  std::vector<std::string> rules;
  for (size_t begin = 0; begin <= mask.size();) {
    const size_t end = std::min(mask.find('+', begin), mask.size());
    rules.push_back(mask.substr(begin, end - begin));
    begin = end + 1;
  }
  const auto parsed = masks::SequenceMask::parse(rules);
  if (parsed.sees_all()) return 1;
  return masks::BlockMask(parsed.of_length(seq)).counts().density();
}

Setting setting_of_lines(int64_t batch, int64_t seq, const std::string& mask) {
  return {.model = "bert-base",
          .hidden = 768,
          .heads = 12,
          .inner = 3072,
          .layers = 12,
          .batch = batch,
          .seq = seq,
          .mask = mask,
          .mask_density = density_of(mask, seq),
          .dtype = "float32"};
}

std::vector<Example> read_scheme_lines(const std::filesystem::path& file, const Setting& setting) {
  const std::string text = read_file(file);
  std::vector<Example> examples;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = trimmed(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (line.empty() || line[0] == '#') continue;
    try {
      examples.push_back(example_of_line(line, setting));
    } catch (const Error& error) {
      throw_error<DataError>("{}:{}: {}", file.string(), number, error.what());
    }
  }
  return examples;
}

TrainingData examples_of(std::span<const Measurement> measurements, const Selection& selection,
                         const std::string& card) {
  std::vector<const Measurement*> selected;
  for (const Measurement& m : measurements) {
    if (m.scheme && selection.takes(m.setting) && (card.empty() || card == m.origin.card))
      selected.push_back(&m);
  }
  TrainingData data;
  if (selected.empty()) return data;
  data.origin = selected.back()->origin;
  std::vector<Setting> settings;
  std::set<std::pair<size_t, int64_t>> seen;
  for (const Measurement* m : selected) {
    if (m->origin != *data.origin) {
      ++data.of_other_origins;
    } else if (!m->milliseconds) {
      ++data.without_time;
    } else if (const size_t setting = index_in(settings, m->setting);
               seen.emplace(setting, *m->scheme).second) {
      data.examples.push_back(
          {m->setting, fusion::Scheme::from_number(*m->scheme), *m->milliseconds});
    }
  }
  return data;
}

TrainingData read_training_file(const std::string& given, const Selection& selection,
                                const std::string& card) {
  if (!holds_measurements(given)) {
    const LinesFile lines = lines_file(given, selection);
    TrainingData data{.examples = read_scheme_lines(lines.file, lines.setting),
                      .legal_forms = false};
    SEQFUSE_CHECK_AS(DataError, !data.examples.empty(),
                     "{}: it has no line; expected lines of a scheme and milliseconds, such as "
                     "1111100011001100   54.524",
                     lines.file);
    return data;
  }
  TrainingData data = examples_of(read_measurements(given), selection, card);
  SEQFUSE_CHECK_AS(DataError, !data.examples.empty(),
                   "{}: no time of a whole scheme {}; `seqfuse report {}` shows what it has", given,
                   data.origin ? "that was ok" : "of what was selected", given);
  return data;
}

TrainingData read_training_files(std::span<const std::string> files, const Selection& selection,
                                 const std::string& card) {
  TrainingData all;
  for (const std::string& file : files) {
    TrainingData one = read_training_file(file, selection, card);
    SEQFUSE_CHECK_AS(
        UsageError, !all.origin || !one.origin || *all.origin == *one.origin,
        "predict: {} is of {}, and a file before it of {}: times of different origins do "
        "not mix; train a model for each",
        file, printed(*one.origin), printed(*all.origin));
    if (one.origin) all.origin = one.origin;
    all.legal_forms = all.legal_forms && one.legal_forms;
    all.without_time += one.without_time;
    all.of_other_origins += one.of_other_origins;
    all.examples.insert(all.examples.end(), one.examples.begin(), one.examples.end());
  }
  return all;
}

}  // namespace seqfuse::tuning
