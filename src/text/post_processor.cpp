#include "text/post_processor.h"

#include <string>

#include "base/error.h"

namespace seqfuse::text {
namespace {

// The id of ["[CLS]", 101].
int32_t id_of_pair(const JsonField& pair) {
  if (pair.array_size() != 2) pair.fail("a token and its id");
  return pair.element(1).token_id();
}

}  // namespace

PostProcessor::PostProcessor(const JsonField& description) {
  add(description, 0);
}

void PostProcessor::add(const JsonField& description, int depth) {
  const std::string type = description.member("type").text();
  if (type == "Sequence") {
    check_nesting(description, depth);
    const JsonField inner = description.member("processors");
    for (size_t i = 0; i < inner.array_size(); ++i) add(inner.element(i), depth + 1);
  } else if (type == "TemplateProcessing") {
    add_template(description);
  } else if (type == "BertProcessing") {
    before_.insert(before_.begin(), id_of_pair(description.member("cls")));
    after_.push_back(id_of_pair(description.member("sep")));
  } else if (type != "ByteLevel") {
    throw_error<DataError>(
        "{} \"{}\" is not supported: BertProcessing, TemplateProcessing, ByteLevel and Sequence "
        "are",
        description.path, type);
  }
}

// Reads "single", the template for one text: special tokens and, once, {"Sequence": …}.
void PostProcessor::add_template(const JsonField& description) {
  const JsonField pieces = description.member("single");
  std::vector<int32_t> before, after;
  bool text_seen = false;
  for (size_t i = 0; i < pieces.array_size(); ++i) {
    const JsonField piece = pieces.element(i);
    if (piece.has("Sequence")) {
      if (text_seen) piece.fail("the text only once");
      text_seen = true;
      continue;
    }
    const std::string name = piece.member("SpecialToken").member("id").text();
    const JsonField ids = description.member("special_tokens").member(name).member("ids");
    for (size_t k = 0; k < ids.array_size(); ++k) {
      (text_seen ? after : before).push_back(ids.element(k).token_id());
    }
  }
  if (!text_seen) pieces.fail("a template that holds the text, {\"Sequence\": …}");
  before_.insert(before_.begin(), before.begin(), before.end());
  after_.insert(after_.end(), after.begin(), after.end());
}

}  // namespace seqfuse::text
