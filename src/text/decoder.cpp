#include "text/decoder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "text/byte_alphabet.h"
#include "text/pattern.h"

namespace seqfuse::text {
namespace {

class JoinBySpaces : public DecodingStep {
 public:
  void push(std::string_view token, const Emit& emit) override {
    if (std::exchange(begun_, true)) emit(" ");
    emit(token);
  }
  void finish(const Emit&) override {}

 private:
  bool begun_ = false;
};

// Letters become bytes, bytes become characters. A token with any other character is left as it is.
class ByteLevel : public DecodingStep {
 public:
  void push(std::string_view token, const Emit& emit) override {
    std::string text;
    const std::optional<std::string> bytes = bytes_of_letters(token);
    assembler_.push(bytes ? *bytes : token, text);
    if (!text.empty()) emit(text);
  }
  void finish(const Emit& emit) override {
    std::string text;
    assembler_.finish(text);
    if (!text.empty()) emit(text);
  }

 private:
  Utf8Assembler assembler_;
};

// Runs of tokens <0x00> to <0xFF> become characters, or U+FFFD per byte if the run is not valid
// UTF-8.
class ByteFallback : public DecodingStep {
 public:
  void push(std::string_view token, const Emit& emit) override {
    if (const std::optional<char> byte = byte_of(token)) {
      run_ += *byte;
    } else {
      finish(emit);
      emit(token);
    }
  }
  void finish(const Emit& emit) override {
    const bool valid = find_invalid_utf8(run_) == run_.size();
    if (valid && !run_.empty()) emit(run_);
    for (size_t i = 0; !valid && i < run_.size(); ++i) emit(kReplacementCharacter);
    run_.clear();
  }

 private:
  static std::optional<char> byte_of(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
    const auto digit = [](char c) {
      if (c >= '0' && c <= '9') return c - '0';
      if (c >= 'A' && c <= 'F') return c - 'A' + 10;
      return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    };
    const int high = digit(token[3]), low = digit(token[4]);
    if (high < 0 || low < 0) return std::nullopt;
    return static_cast<char>(16 * high + low);
  }
  std::string run_;
};

// Tokens that begin a word get a space before them, but not the first token. cleanup: joins some
// punctuation and English contractions to what is before them, in each token.
class JoinWordPieces : public DecodingStep {
 public:
  JoinWordPieces(std::string prefix, bool cleanup)
      : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void push(std::string_view token, const Emit& emit) override {
    std::string text;
    if (!std::exchange(begun_, true)) {
      text = token;
    } else if (token.starts_with(prefix_)) {
      text = token.substr(prefix_.size());
    } else {
      text = " ";
      text += token;
    }
    if (cleanup_) clean(text);
    emit(text);
  }
  void finish(const Emit&) override {}

 private:
  static void clean(std::string& text) {
    constexpr std::pair<std::string_view, std::string_view> kJoined[] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : kJoined) {
      for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
        text.replace(at, from.size(), to);
      }
    }
  }

  std::string prefix_;
  bool cleanup_, begun_ = false;
};

class Replace : public DecodingStep {
 public:
  Replace(Pattern pattern, std::string by) : pattern_(std::move(pattern)), by_(std::move(by)) {}
  void push(std::string_view token, const Emit& emit) override {
    std::string result;
    pattern_.split(token, [&](std::string_view segment, bool is_match) {
      result += is_match ? std::string_view(by_) : segment;
    });
    emit(result);
  }
  void finish(const Emit&) override {}

 private:
  Pattern pattern_;
  std::string by_;
};

// Buffers everything until the end, for a step that needs the whole text.
class Collect : public DecodingStep {
 public:
  void push(std::string_view token, const Emit&) override { text_ += token; }
  void finish(const Emit& emit) override { emit(text_); }

 private:
  std::string text_;
};

struct StripLimits {
  std::string character;
  size_t at_begin, at_end;  // maximum number of characters to strip
};

class StripTokens : public DecodingStep {
 public:
  explicit StripTokens(StripLimits limits) : limits_(std::move(limits)) {}
  void push(std::string_view token, const Emit& emit) override {
    for (size_t i = 0; i < limits_.at_begin && token.starts_with(limits_.character); ++i) {
      token.remove_prefix(limits_.character.size());
    }
    for (size_t i = 0; i < limits_.at_end && token.ends_with(limits_.character); ++i) {
      token.remove_suffix(limits_.character.size());
    }
    emit(token);
  }
  void finish(const Emit&) override {}

 private:
  StripLimits limits_;
};

// After Fuse the whole text is one token, which arrives in parts.
class StripText : public DecodingStep {
 public:
  explicit StripText(StripLimits limits)
      : character_(std::move(limits.character)),
        begin_left_(limits.at_begin),
        at_end_(limits.at_end) {}
  void push(std::string_view part, const Emit& emit) override {
    for (; begin_left_ > 0 && part.starts_with(character_); --begin_left_) {
      part.remove_prefix(character_.size());
    }
    if (part.empty()) return;
    begin_left_ = 0;
    size_t end = part.size();  // end of what can no longer be stripped
    while (part.substr(0, end).ends_with(character_) && at_end_ > 0) end -= character_.size();
    if (end > 0) release(held_, emit);
    if (end > 0) emit(part.substr(0, end));
    held_ += (part.size() - end) / character_.size();
    if (held_ > at_end_) release(held_ - at_end_, emit);
  }
  void finish(const Emit&) override {}

 private:
  void release(size_t count, const Emit& emit) {
    for (held_ -= count; count > 0; --count) emit(character_);
  }
  std::string character_;
  size_t begin_left_, at_end_;
  size_t held_ = 0;  // characters to drop if the text ends here
};

}  // namespace

Decoder::Decoder() {
  makers_.emplace_back([] { return std::make_unique<JoinBySpaces>(); });
}

Decoder::Decoder(const JsonField& description) {
  add(description, 0);
}

void Decoder::add(const JsonField& description, int depth) {
  const std::string type = description.member("type").text();
  if (type == "Sequence") {
    check_nesting(description, depth);
    const JsonField inner = description.member("decoders");
    for (size_t i = 0; i < inner.array_size(); ++i) add(inner.element(i), depth + 1);
  } else if (type == "ByteLevel") {
    if (fused_) makers_.emplace_back([] { return std::make_unique<Collect>(); });
    makers_.emplace_back([] { return std::make_unique<ByteLevel>(); });
    fused_ = true;
  } else if (type == "ByteFallback") {
    if (fused_) makers_.emplace_back([] { return std::make_unique<Collect>(); });
    makers_.emplace_back([] { return std::make_unique<ByteFallback>(); });
  } else if (type == "Replace") {
    if (fused_) makers_.emplace_back([] { return std::make_unique<Collect>(); });
    makers_.emplace_back([pattern = Pattern::parse(description.member("pattern")),
                          by = description.member("content").text()] {
      return std::make_unique<Replace>(pattern, by);
    });
  } else if (type == "WordPiece") {
    if (fused_) makers_.emplace_back([] { return std::make_unique<Collect>(); });
    makers_.emplace_back([prefix = description.text_or("prefix", "##"),
                          cleanup = description.boolean_or("cleanup", true)] {
      return std::make_unique<JoinWordPieces>(prefix, cleanup);
    });
  } else if (type == "Fuse") {
    fused_ = true;
  } else if (type == "Strip") {
    StripLimits limits{description.member("content").text(), description.member("start").count(),
                       description.member("stop").count()};
    const std::string& character = limits.character;
    if (character.empty() || character_at(character, 0).length != character.size()) {
      description.member("content").fail("one character");
    }
    makers_.emplace_back([limits, fused = fused_]() -> std::unique_ptr<DecodingStep> {
      if (fused) return std::make_unique<StripText>(limits);
      return std::make_unique<StripTokens>(limits);
    });
  } else {
    throw_error<DataError>(
        "{} \"{}\" is not supported: WordPiece, ByteLevel, Replace, ByteFallback, Fuse, Strip and "
        "Sequence are",
        description.path, type);
  }
}

std::vector<std::unique_ptr<DecodingStep>> Decoder::start() const {
  std::vector<std::unique_ptr<DecodingStep>> steps;
  for (const auto& make : makers_) steps.push_back(make());
  return steps;
}

}  // namespace seqfuse::text
