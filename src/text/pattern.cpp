#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pattern.h"

#include <pcre2.h>

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/utf8.h"
#include "text/pattern_syntax.h"
#include "text/unicode/unicode_version.h"

namespace seqfuse::text {
namespace {

constexpr size_t kSmallStack = 64 << 10, kLargestStack = 256 << 20;  // reserved, not used at once

// Per-thread match state, for any pattern.
class Matcher {
 public:
  Matcher()
      : data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        stack_(pcre2_jit_stack_create(kSmallStack, kLargestStack, nullptr)) {
    if (data_ == nullptr || context_ == nullptr) throw std::bad_alloc();
    if (stack_ != nullptr) pcre2_jit_stack_assign(context_, nullptr, stack_);
  }
  ~Matcher() {
    pcre2_jit_stack_free(stack_);
    pcre2_match_context_free(context_);
    pcre2_match_data_free(data_);
  }
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  struct Match {
    size_t begin, end;
  };
  std::optional<Match> find(const pcre2_code* code, std::string_view text, size_t from) {
    const int count = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                  from, PCRE2_NO_UTF_CHECK, data_, context_);
    if (count == PCRE2_ERROR_NOMATCH) return std::nullopt;
    SEQFUSE_CHECK(
        count >= 0,
        "the tokenizer's pattern needs too many steps or too much memory at byte {} of the "
        "text (PCRE2 error {})",
        from, count);
    const size_t* offsets = pcre2_get_ovector_pointer(data_);
    return Match{offsets[0], offsets[1]};
  }

 private:
  pcre2_match_data* data_;
  pcre2_match_context* context_;
  pcre2_jit_stack* stack_;
};

}  // namespace

Pattern::Pattern(std::string_view pattern, uint32_t options) {
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  size_t offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   options | PCRE2_UTF, &error, &offset, context.get());
  if (code == nullptr) {
    std::array<PCRE2_UCHAR, 256> message{};
    pcre2_get_error_message(error, message.data(), message.size());
    throw_error<DataError>("pattern {}: {} at character {}", pattern,
                           reinterpret_cast<const char*>(message.data()), offset);
  }
  code_ = {code, [](const pcre2_code* c) { pcre2_code_free(const_cast<pcre2_code*>(c)); }};
  // On systems that forbid JIT code, PCRE2 interprets the pattern.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
}

Pattern Pattern::regex(std::string_view pattern) {
  return {to_pcre2_syntax(pattern), PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C};
}

Pattern Pattern::literal(std::string_view text) {
  return {text, PCRE2_LITERAL};
}

Pattern Pattern::parse(const JsonField& pattern) {
  if (pattern.has("String")) return literal(pattern.member("String").text());
  return regex(pattern.member("Regex").text());
}

void Pattern::split(std::string_view text, const Visit& visit) const {
  if (text.empty()) {
    visit(text, false);
    return;
  }
  thread_local Matcher matcher;
  const std::optional<std::string> stand_ins = with_stand_ins(text);
  const std::string_view matched = stand_ins ? *stand_ins : text;
  size_t done = 0;                 // the end of the last segment
  std::optional<size_t> last_end;  // of the last match; an empty match may not start here
  for (size_t from = 0; from <= text.size();) {
    const auto match = matcher.find(code_.get(), matched, from);
    if (!match) break;
    if (match->begin == match->end && last_end == match->end) {
      from += from < text.size() ? character_at(text, from).length : 1;
      continue;
    }
    if (match->begin != done) visit(text.substr(done, match->begin - done), false);
    visit(text.substr(match->begin, match->end - match->begin), true);
    done = match->end;
    last_end = match->end;
    from = match->end;
  }
  if (done != text.size()) visit(text.substr(done), false);
}

}  // namespace seqfuse::text
