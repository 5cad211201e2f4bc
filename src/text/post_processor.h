// The post-processor of a tokenizer.json, which puts special tokens around a text's ids:
// BertProcessing, TemplateProcessing, ByteLevel (which changes no id), and Sequence of them.
#pragma once

#include <cstdint>
#include <vector>

#include "text/json_fields.h"

namespace seqfuse::text {

class PostProcessor {
 public:
  PostProcessor() = default;  // adds nothing
  // description: the member "post_processor", not null. Throws DataError that names an unknown
  // type.
  explicit PostProcessor(const JsonField& description);

  const std::vector<int32_t>& before() const { return before_; }
  const std::vector<int32_t>& after() const { return after_; }

 private:
  void add(const JsonField& description, int depth);
  void add_template(const JsonField& description);

  std::vector<int32_t> before_, after_;
};

}  // namespace seqfuse::text
