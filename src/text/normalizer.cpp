#include "text/normalizer.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "base/utf8.h"
#include "text/pattern.h"
#include "text/unicode/bert_characters.h"
#include "text/unicode/unicode_version.h"

namespace seqfuse::text {
namespace {

void append_normal_form(std::string_view text, utf8proc_option_t form, std::string& result) {
  if (text.size() <= 1) {  // empty, or an ASCII character
    result += text;
    return;
  }
  utf8proc_uint8_t* mapped = nullptr;
  const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                   static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                   static_cast<utf8proc_option_t>(form | UTF8PROC_STABLE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, std::free);
  SEQFUSE_CHECK(length >= 0, "cannot normalize a text of {} bytes: {}", text.size(),
                utf8proc_errmsg(length));
  result.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(length));
}

// Nothing combines across the start of an ASCII character, nor on either side of a character
// outside normal forms; the text is normalized in parts between such places.
std::string normal_form(std::string_view text, utf8proc_option_t form) {
  std::string result;
  size_t begin = 0;  // of the part not yet in the result
  size_t i = 0;
  while (i < text.size()) {
    const auto [code, length] = character_at(text, i);
    if (code < 0x80) {
      append_normal_form(text.substr(begin, i - begin), form, result);
      begin = i;
      while (i < text.size() && static_cast<unsigned char>(text[i]) < 0x80) ++i;
      result += text.substr(begin, i - 1 - begin);
      begin = i - 1;  // the last ASCII character, which a mark may combine with
      continue;
    }
    if (is_outside_normal_forms(code)) {
      append_normal_form(text.substr(begin, i - begin), form, result);
      result += text.substr(i, length);
      begin = i + length;
    }
    i += length;
  }
  append_normal_form(text.substr(begin), form, result);
  return result;
}

std::string replace(const std::string& text, const Pattern& pattern, const std::string& by) {
  std::string result;
  pattern.split(text, [&](std::string_view segment, bool is_match) {
    result += is_match ? std::string_view(by) : segment;
  });
  return result;
}

}  // namespace

Normalizer::Normalizer(const JsonField& description) {
  add(description, 0);
}

void Normalizer::add(const JsonField& description, int depth) {
  const std::string type = description.member("type").text();
  const auto add_form = [&](int form) {
    steps_.emplace_back([form](const std::string& text) {
      return normal_form(text, static_cast<utf8proc_option_t>(form));
    });
  };
  if (type == "Sequence") {
    check_nesting(description, depth);
    const JsonField inner = description.member("normalizers");
    for (size_t i = 0; i < inner.array_size(); ++i) add(inner.element(i), depth + 1);
  } else if (type == "NFC") {
    add_form(UTF8PROC_COMPOSE);
  } else if (type == "NFD") {
    add_form(UTF8PROC_DECOMPOSE);
  } else if (type == "NFKC") {
    add_form(UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
  } else if (type == "NFKD") {
    add_form(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  } else if (type == "Prepend") {
    steps_.emplace_back([prefix = description.member("prepend").text()](const std::string& text) {
      return text.empty() ? text : prefix + text;
    });
  } else if (type == "Replace") {
    steps_.emplace_back([pattern = Pattern::parse(description.member("pattern")),
                         by = description.member("content").text()](const std::string& text) {
      return replace(text, pattern, by);
    });
  } else if (type == "BertNormalizer") {
    add_bert(description);
  } else {
    throw_error<DataError>(
        "{} \"{}\" is not supported: BertNormalizer, NFC, NFD, NFKC, NFKD, Prepend, Replace and "
        "Sequence are",
        description.path, type);
  }
}

void Normalizer::add_bert(const JsonField& description) {
  const auto add_step = [&](std::string (*step)(std::string_view)) {
    steps_.emplace_back([step](const std::string& text) { return step(text); });
  };
  const bool lower = description.boolean_or("lowercase", true);
  if (description.boolean_or("clean_text", true)) add_step(clean_bert_text);
  if (description.boolean_or("handle_chinese_chars", true)) add_step(with_spaced_ideographs);
  if (description.boolean_or("strip_accents", lower)) {
    steps_.emplace_back([](const std::string& text) {
      return without_marks(normal_form(text, UTF8PROC_DECOMPOSE));
    });
  }
  if (lower) add_step(lowercase);
}

std::string Normalizer::apply(std::string_view text) const {
  std::string result(text);
  for (const auto& step : steps_) result = step(result);
  return result;
}

}  // namespace seqfuse::text
