#include "cli/sentence_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "cli/command_line.h"

namespace seqfuse::cli {
namespace {

// Without line ends, \n or \r\n; the last line need not have one.
std::vector<std::string> lines_of(std::string_view content) {
  std::vector<std::string> lines;
  while (!content.empty()) {
    const size_t end = std::min(content.find('\n'), content.size());
    std::string_view line = content.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
    content.remove_prefix(std::min(end + 1, content.size()));
  }
  return lines;
}

std::vector<std::string> lines_of_file(const std::string& file) {
  std::vector<std::string> lines = lines_of(read_file(file));
  SEQFUSE_CHECK_AS(DataError, !lines.empty(), "{} is empty; expected one sentence a line", file);
  return lines;
}

}  // namespace

void add_sentence_options(CLI::App& app, std::string& text_file, std::string& ids) {
  auto* source = app.add_option_group("sentences", "one of these")->require_option(1);
  source->add_option("--text-file", text_file, "a sentence a line")->check(kPath);
  source->add_option("--ids", ids, "a file with a sentence's ids a line, or ids: 5,6,7")
      ->check(kPath);
}

SentenceInput SentenceInput::of_text_file(const std::string& file, const ModelText& text) {
  SentenceInput input;
  input.source_ = file;
  input.lines_ = lines_of_file(file);
  input.text_ = &text;
  return input;
}

SentenceInput SentenceInput::of_ids(const std::string& file_or_ids, int64_t vocab_size) {
  SentenceInput input;
  input.vocab_size_ = vocab_size;
  if (file_or_ids.find_first_not_of("0123456789,") == std::string::npos) {
    input.lines_ = {file_or_ids};
  } else {
    input.source_ = file_or_ids;
    input.lines_ = lines_of_file(file_or_ids);
  }
  return input;
}

std::vector<std::vector<int64_t>> SentenceInput::ids(int64_t begin, int64_t end,
                                                     const SentenceLimits& limits) {
  std::vector<std::vector<int64_t>> sentences;
  for (int64_t i = begin; i < end; ++i) {
    const std::string source =
        source_.empty() ? "--ids" : fmt::format("{}, line {}", source_, i + 1);
    try {
      sentences.push_back(ids_of_line(lines_[static_cast<size_t>(i)], source, limits));
      SEQFUSE_CHECK_AS(DataError, !sentences.back().empty(),
                       "{}: it has no tokens; expected one sentence a line", source);
    } catch (const DataError& error) {
      if (source_.empty()) throw UsageError(error.what());
      throw;
    }
  }
  return sentences;
}

std::vector<int64_t> SentenceInput::ids_of_line(const std::string& line, const std::string& source,
                                                const SentenceLimits& limits) {
  bool cut = false;
  std::vector<int64_t> ids;
  if (text_ != nullptr) {
    ids = text_->encode_up_to(line, source, limits.most_tokens, cut);
  } else {
    ids = numbers_of_line(line, source);
    cut = std::ssize(ids) > limits.most_tokens;
    if (cut) ids.resize(static_cast<size_t>(limits.most_tokens));
  }
  SEQFUSE_CHECK_AS(DataError, !cut || limits.truncate, "{}: it has more than {} tokens; {}", source,
                   limits.most_tokens, limits.advice);
  if (cut) ++truncated_;
  return ids;
}

std::vector<int64_t> SentenceInput::numbers_of_line(std::string_view line,
                                                    const std::string& source) const {
  constexpr std::string_view kBetween = ", \t";
  std::vector<int64_t> ids;
  while (true) {
    line.remove_prefix(std::min(line.find_first_not_of(kBetween), line.size()));
    if (line.empty()) return ids;
    const std::string_view word = line.substr(0, line.find_first_of(kBetween));
    int64_t id = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    SEQFUSE_CHECK_AS(DataError, error == std::errc() && stop == word.data() + word.size(),
                     "{}: '{}' is no id; expected numbers with commas or spaces between them",
                     source, word);
    SEQFUSE_CHECK_AS(DataError, id >= 0 && id < vocab_size_,
                     "{}: there is no id {}; expected 0 to {}, the model's vocabulary", source, id,
                     vocab_size_ - 1);
    ids.push_back(id);
    line.remove_prefix(word.size());
  }
}

}  // namespace seqfuse::cli
