#include "text/token_model.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/bpe.h"
#include "text/word_piece.h"

namespace seqfuse::text {
namespace {

// Old files leave the type out.
std::string type_of(const JsonField& model) {
  if (model.has("merges")) return model.text_or("type", "BPE");
  return model.text_or("type", model.has("max_input_chars_per_word") ? "WordPiece" : "");
}

}  // namespace

TokenModel::TokenModel(const JsonField& vocabulary) {
  if (!vocabulary.value.is_object()) vocabulary.fail("an object of tokens and their ids");
  std::unordered_map<int32_t, const std::string*> tokens;
  for (const auto& [token, value] : vocabulary.value.items()) {
    const int32_t id = JsonField{value, "model.vocab." + token}.token_id();
    const auto added = vocabulary_.emplace(token, id).first;
    const auto [other, is_new] = tokens.emplace(id, &added->first);
    SEQFUSE_CHECK_AS(DataError, is_new,
                     "model.vocab gives the id {} to two tokens, \"{}\" and \"{}\"", id,
                     *other->second, token);
  }
}

std::unique_ptr<TokenModel> make_token_model(const JsonField& model, bool byte_level) {
  const std::string type = type_of(model);
  if (type == "BPE") return std::make_unique<Bpe>(model, byte_level);
  if (type == "WordPiece") return std::make_unique<WordPiece>(model);
  throw_error<DataError>("model \"{}\" is not supported, only BPE and WordPiece are", type);
}

}  // namespace seqfuse::text
