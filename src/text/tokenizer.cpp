#include "text/tokenizer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "text/tokenizer_data.h"
#include "text/word_cache.h"

namespace seqfuse::text {
namespace {

constexpr std::string_view kFormatVersion = "1.0";

}  // namespace

Tokenizer Tokenizer::load(const std::filesystem::path& file) {
  return parse(read_file(file), file.string());
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& name) {
  const nlohmann::json root = nlohmann::json::parse(json, nullptr, false);
  SEQFUSE_CHECK_AS(DataError, !root.is_discarded(),
                   "{} is not JSON; a tokenizer.json of Hugging Face's tokenizers is expected",
                   name);
  try {
    const JsonField top{root, ""};
    SEQFUSE_CHECK_AS(
        DataError, root.is_object() && root.contains("model"),
        "it is not a tokenizer.json of Hugging Face's tokenizers: it has no member \"model\"");
    const std::string version = top.text_or("version", std::string(kFormatVersion));
    SEQFUSE_CHECK_AS(DataError, version == kFormatVersion,
                     "the format's version is {}, only {} is supported", version, kFormatVersion);
    return Tokenizer(std::make_shared<const Data>(top));
  } catch (const DataError& error) {
    throw_error<DataError>("{}: {}", name, error.what());
  }
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::string valid;
  if (const size_t offset = find_invalid_utf8(text); offset != text.size()) {
    SEQFUSE_CHECK_AS(DataError, options.replace_invalid_utf8,
                     "the text is not UTF-8: byte {} (0x{:02X}) begins no character", offset,
                     static_cast<unsigned char>(text[offset]));
    valid = replace_invalid_utf8(text);
    text = valid;
  }
  std::vector<int32_t> ids;
  WordCache cache(*data_->model);
  const auto encode_normalized = [&](std::string_view part) {
    data_->added_normalized.split(part, [&](std::string_view between, std::optional<int32_t> id) {
      if (id) {
        ids.push_back(*id);
      } else {
        data_->pre_tokenizer.split(between,
                                   [&](std::string_view piece) { cache.encode(piece, ids); });
      }
    });
  };
  if (options.add_special_tokens) ids = data_->post_processor.before();
  const int64_t before = std::ssize(ids);
  data_->added.split(text, [&](std::string_view part, std::optional<int32_t> id) {
    if (id) {
      ids.push_back(*id);
    } else if (data_->normalizer.changes_nothing()) {
      encode_normalized(part);
    } else {
      encode_normalized(data_->normalizer.apply(part));
    }
  });
  const std::vector<int32_t> after =
      options.add_special_tokens ? data_->post_processor.after() : std::vector<int32_t>();
  if (options.most_tokens > 0) {
    const int64_t room = options.most_tokens - std::ssize(after);
    SEQFUSE_CHECK_AS(
        UsageError, room >= before,
        "at most {} tokens are asked for, of which {} are special ones around the text",
        options.most_tokens, before + std::ssize(after));
    if (std::ssize(ids) > room) ids.resize(static_cast<size_t>(room));
  }
  ids.insert(ids.end(), after.begin(), after.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  StreamDecoder decoder(*this, skip_special_tokens);
  std::string text;
  for (const int32_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

int64_t Tokenizer::vocab_size() const {
  return static_cast<int64_t>(data_->ids.size());
}

int32_t Tokenizer::largest_id() const {
  return static_cast<int32_t>(data_->tokens.size()) - 1;
}

std::optional<int32_t> Tokenizer::id_of(std::string_view token) const {
  const auto found = data_->ids.find(std::string(token));
  return found == data_->ids.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::string_view> Tokenizer::token_of(int32_t id) const {
  if (id < 0 || id > largest_id() || !data_->tokens[id]) return std::nullopt;
  return *data_->tokens[id];
}

bool Tokenizer::is_special(int32_t id) const {
  return data_->special.contains(id);
}

struct StreamDecoder::Steps {
  std::vector<std::unique_ptr<DecodingStep>> steps;

  // Pushes text into a step; the last step's output is appended to out.
  void push(size_t step, std::string_view text, std::string& out) {
    if (step == steps.size()) {
      out += text;
    } else {
      steps[step]->push(text, [&](std::string_view emitted) { push(step + 1, emitted, out); });
    }
  }
};

StreamDecoder::StreamDecoder(Tokenizer tokenizer, bool skip_special_tokens)
    : tokenizer_(std::move(tokenizer)),
      skip_special_tokens_(skip_special_tokens),
      steps_(std::make_unique<Steps>(Steps{tokenizer_.data_->decoder.start()})) {}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::push(int32_t id) {
  std::string out;
  const std::optional<std::string_view> token = tokenizer_.token_of(id);
  if (token && !(skip_special_tokens_ && tokenizer_.is_special(id))) steps_->push(0, *token, out);
  return out;
}

std::string StreamDecoder::finish() {
  std::string out;
  for (size_t i = 0; i < steps_->steps.size(); ++i) {
    steps_->steps[i]->finish([&](std::string_view emitted) { steps_->push(i + 1, emitted, out); });
  }
  return out;
}

}  // namespace seqfuse::text
