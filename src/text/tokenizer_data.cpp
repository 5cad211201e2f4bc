#include "text/tokenizer_data.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"

namespace seqfuse::text {
namespace {

// Builds the part of a tokenizer that a member describes; a part that does nothing if it is absent
// or null.
template <class Part>
Part read_part(const JsonField& root, const char* name) {
  return root.has(name) ? Part(root.member(name)) : Part();
}

}  // namespace

Tokenizer::Data::Data(const JsonField& root)
    : normalizer(read_part<Normalizer>(root, "normalizer")),
      pre_tokenizer(read_part<PreTokenizer>(root, "pre_tokenizer")),
      model(make_token_model(root.member("model"), pre_tokenizer.byte_level())),
      post_processor(read_part<PostProcessor>(root, "post_processor")),
      decoder(read_part<Decoder>(root, "decoder")),
      ids(model->vocabulary()) {
  std::vector<AddedToken> added_tokens;
  if (root.has("added_tokens")) added_tokens = add_tokens(root.member("added_tokens"));
  int32_t largest = -1;
  for (const auto& [token, id] : ids) largest = std::max(largest, id);
  SEQFUSE_CHECK_AS(DataError, largest >= 0, "model.vocab is empty");
  tokens.resize(largest + 1);
  for (const auto& [token, id] : ids) tokens[id] = token;
  // As in Hugging Face's tokenizers, a normalized token decodes to its normalized text and is
  // special if that text is a special token's.
  std::set<std::string> special_texts;
  for (const AddedToken& token : added_tokens) {
    if (token.special) special_texts.insert(token.content);
  }
  for (const AddedToken& token : added_tokens) {
    if (token.normalized) tokens[token.id] = normalizer.apply(token.content);
    if (special_texts.contains(*tokens[token.id])) special.insert(token.id);
  }
  check_template();
}

void Tokenizer::Data::check_template() const {
  for (const auto* part : {&post_processor.before(), &post_processor.after()}) {
    for (const int32_t id : *part) {
      SEQFUSE_CHECK_AS(DataError, static_cast<size_t>(id) < tokens.size() && tokens[id],
                       "post_processor adds the id {}, which is no token's", id);
    }
  }
}

// An id outside the vocabulary must be the next free one: Hugging Face's tokenizers number added
// tokens that way, whatever the file says.
std::vector<AddedToken> Tokenizer::Data::add_tokens(const JsonField& added_tokens) {
  auto next_id = static_cast<int32_t>(ids.size());
  std::set<int32_t> used;
  for (const auto& [token, id] : ids) used.insert(id);
  std::set<std::string> seen;
  std::vector<AddedToken> result;
  for (size_t i = 0; i < added_tokens.array_size(); ++i) {
    const JsonField description = added_tokens.element(i);
    const AddedToken token = parse_added_token(description);
    if (!seen.insert(token.content).second) {
      description.member("content").fail("a token that is not added twice");
    }
    const auto known = ids.find(token.content);
    const int32_t expected = known != ids.end() ? known->second : next_id;
    if (token.id != expected || (known == ids.end() && used.contains(expected))) {
      description.member("id").fail(fmt::format(
          "{}, which is {}", expected,
          known != ids.end() ? "the id of this token in model.vocab"
                             : "the number of tokens before it; ids must have no gaps"));
    }
    if (known == ids.end()) ++next_id;
    ids.emplace(token.content, token.id);
    used.insert(token.id);
    if (token.normalized) {
      added_normalized.add(token, normalizer.apply(token.content));
    } else {
      added.add(token, token.content);
    }
    result.push_back(token);
  }
  return result;
}

}  // namespace seqfuse::text
