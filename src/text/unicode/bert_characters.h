// The character classes of BERT's normalizer and pre-tokenizer, as in Hugging Face's tokenizers. All
// functions take and give valid UTF-8.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace seqfuse::text {

// Without control and private-use characters, NUL and U+FFFD; white space becomes spaces.
std::string clean_bert_text(std::string_view text);
// A space before and after each CJK ideograph.
std::string with_spaced_ideographs(std::string_view text);
// Without nonspacing marks. The text must be in NFD.
std::string without_marks(std::string_view text);
std::string lowercase(std::string_view text);

// Calls visit with the words between white space; a punctuation character is a word of its own.
void split_bert_words(std::string_view text,
                      const std::function<void(std::string_view word)>& visit);

}  // namespace seqfuse::text
