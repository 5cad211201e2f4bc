#include "cli/generate_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"

namespace seqfuse::cli {
namespace {

void warn(const OutputForm& form, size_t prompt, const serving::Generated& generated) {
  if (generated.finish == serving::Finish::cache_full) {
    log::warning("generate",
                 "prompt {}: the full cache is full after {} new tokens; --cache-size or --cache "
                 "streaming goes on",
                 prompt, generated.ids.size());
  }
  if (form.text == nullptr) return;
  const auto& ids = generated.ids;
  const auto unknown =
      std::count_if(ids.begin(), ids.end(), [&](int64_t id) { return !form.text->has_text(id); });
  if (unknown > 0) {
    log::warning("generate",
                 "prompt {}: {} of {} new tokens are not in tokenizer.json and have no text; does "
                 "it belong to this model?",
                 prompt, unknown, ids.size());
  }
}

}  // namespace

GenerateOutput::GenerateOutput(OutputForm form, const std::vector<std::vector<int64_t>>& prompts,
                               size_t first)
    : form_(std::move(form)), prompts_(prompts), first_(first), rows_(prompts.size()) {
  for (size_t row = 0; row < rows_.size(); ++row) {
    if (form_.text != nullptr) rows_[row].text = form_.text->follow(form_.stops);
    show(static_cast<int64_t>(row), title(static_cast<int64_t>(row)));
  }
}

std::string GenerateOutput::title(int64_t row) const {
  if (form_.json || form_.ids || !form_.titles) return "";
  return fmt::format("==> prompt {} <==\n", first_ + row + 1);
}

void GenerateOutput::show(int64_t row, const std::string& piece) {
  if (piece.empty()) return;
  if (static_cast<size_t>(row) != turn_) {
    rows_[row].waiting += piece;
    return;
  }
  std::fwrite(piece.data(), 1, piece.size(), stdout);
  std::fflush(stdout);
}

bool GenerateOutput::token(int64_t row, int64_t id) {
  Row& state = rows_[row];
  const std::string piece = state.text ? state.text->push(id) : "";
  if (!form_.json) {
    show(row, form_.ids ? fmt::format("{}{}", state.count > 0 ? "," : "", id) : piece);
  }
  ++state.count;
  return !state.text || !state.text->stopped();
}

void GenerateOutput::end(int64_t row, const serving::Generated& generated) {
  Row& state = rows_[row];
  const std::string rest = state.text ? state.text->finish() : "";
  if (form_.json) {
    show(row, json_line(row, generated));
  } else {
    show(row, (form_.ids ? "" : rest) + "\n");
  }
  warn(form_, first_ + row + 1, generated);
  state.ended = true;
  while (turn_ < rows_.size() && rows_[turn_].ended) {
    ++turn_;
    if (turn_ < rows_.size()) {
      show(static_cast<int64_t>(turn_), std::exchange(rows_[turn_].waiting, ""));
    }
  }
}

std::string GenerateOutput::json_line(int64_t row, const serving::Generated& generated) const {
  nlohmann::json line = {{"prompt_ids", prompts_[row]},
                         {"ids", generated.ids},
                         {"finish", serving::name_of(generated.finish)}};
  if (rows_[row].text) line["text"] = rows_[row].text->text();
  return line.dump() + "\n";
}

}  // namespace seqfuse::cli
