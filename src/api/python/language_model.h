// torch.classes.seqfuse.LanguageModel: a GPT-NeoX that Python loads and decodes with.
#pragma once

#include <torch/custom_class.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "api/python/cache_rule.h"
#include "api/python/watch.h"
#include "models/gpt_neox/model.h"

namespace seqfuse::api {

// Loaded once, then constant: its functions may run in several threads. They throw ValueError for what is
// wrong with the arguments.
class LanguageModel : public torch::CustomClassHolder {
 public:
  // directory: of a Hugging Face GPT-NeoX. dtype: float32, float16, bfloat16, float64, or auto: float32
  // on a CPU, else that of the file. Throws ValueError for a folder that holds something else, and
  // RuntimeError where memory does not suffice.
  LanguageModel(const std::string& directory, const std::string& dtype, at::Device device);

  const models::gpt_neox::Config& config() const { return model_->config(); }
  at::ScalarType dtype() const { return model_->dtype(); }

  // The new ids of each prompt, and why each text ended (serving::Finish). first_text: the number of
  // the first prompt, which draws depend on.
  std::tuple<std::vector<std::vector<int64_t>>, std::vector<std::string>> generate(
      const c10::intrusive_ptr<CacheRule>& rule, const std::vector<std::vector<int64_t>>& prompts,
      int64_t max_new_tokens, const std::vector<int64_t>& eos_ids, double temperature,
      int64_t top_k, double top_p, double repetition_penalty, int64_t seed, int64_t first_text,
      const c10::intrusive_ptr<Watch>& watch) const;

  // -log of the probability of each id but the first: float64 [ids - 1], fewer where watch stops it.
  at::Tensor losses(const c10::intrusive_ptr<CacheRule>& rule, const std::vector<int64_t>& ids,
                    int64_t tokens_per_pass, const c10::intrusive_ptr<Watch>& watch) const;

  // One pass over all ids as a prompt: the input of each layer, then the output of the final norm;
  // [ids, H] each.
  std::vector<at::Tensor> hidden_states(const std::vector<int64_t>& ids) const;

 private:
  void check_cache_memory(const kv_cache::Rule& rule, int64_t texts) const;

  std::optional<models::gpt_neox::Model> model_;
};

}  // namespace seqfuse::api
