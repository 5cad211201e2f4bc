#include "api/python/bert_encoder.h"

#include <fmt/ranges.h>

#include "api/python/dtypes.h"
#include "api/python/errors.h"

namespace seqfuse::api {
using models::bert::SequenceMask;
namespace {

void check_rows(const char* name, const at::Tensor& values, int64_t rows, at::Device device) {
  SEQFUSE_CHECK_AS(UsageError,
                   values.dim() == 1 && values.numel() == rows &&
                       values.scalar_type() == at::kLong && values.device() == device,
                   "{} is {} {} on {}; expected int64 [{}] on {}", name,
                   c10::toString(values.scalar_type()), c10::str(values.sizes()),
                   values.device().str(), rows, device.str());
}

}  // namespace

BertEncoder::BertEncoder(const std::string& directory, const std::string& dtype,
                         at::Device device) {
  with_python_errors([&] {
    model_.emplace(models::bert::Model::load(
        directory,
        dtype_named(dtype, [&] { return models::bert::default_dtype(directory, device); }),
        device));
  });
}

void BertEncoder::use_plan(const std::string& file) {
  with_python_errors([&] {
    const models::bert::Plan plan = models::bert::load_plan(file);
    try {
      plan_.emplace(plan, *model_);
    } catch (const UsageError& error) {
      throw_error<UsageError>("{}: {}", file, error.what());
    }
  });
}

c10::intrusive_ptr<EncoderBatch> BertEncoder::batch(const std::vector<int64_t>& lengths,
                                                    const std::vector<std::string>& mask) const {
  return with_python_errors([&] {
    const int64_t longest = config().max_position_embeddings;
    for (const int64_t length : lengths) {
      SEQFUSE_CHECK_AS(UsageError, length >= 0 && length <= longest,
                       "a sequence has {} tokens; expected 0 to {}, the model's longest", length,
                       longest);
    }
    if (plan_) {
      const std::string why = plan_->why_not_for(lengths);
      SEQFUSE_CHECK_AS(UsageError, why.empty(), "{}; an encoder without a plan takes any batch",
                       why);
      const std::string rules = fmt::format("{}", fmt::join(mask, "+"));
      SEQFUSE_CHECK_AS(UsageError, rules == plan_->plan().mask,
                       "the plan is for the mask {}, and mask is {}", plan_->plan().mask, rules);
    }
    SequenceMask of_batch;
    {
      const std::lock_guard lock(mutex_);
      auto known = masks_.find(mask);
      if (known == masks_.end()) known = masks_.emplace(mask, SequenceMask::parse(mask)).first;
      of_batch = known->second;
    }
    auto made = c10::make_intrusive<EncoderBatch>();
    made->rows = models::bert::Rows::jagged(lengths, of_batch, model_->device());
    if (plan_) plan_->prepare(made->rows, model_->device());
    made->positions = models::bert::positions_of(lengths, model_->device());
    return made;
  });
}

at::Tensor BertEncoder::states(const at::Tensor& ids, const std::optional<at::Tensor>& types,
                               const std::optional<at::Tensor>& positions,
                               const c10::intrusive_ptr<EncoderBatch>& batch) const {
  return with_python_errors([&] {
    const int64_t rows = batch->rows.count();
    check_rows("ids", ids, rows, model_->device());
    if (types) check_rows("types", *types, rows, model_->device());
    if (positions) check_rows("positions", *positions, rows, model_->device());
    return model_->states({ids.contiguous(), types ? types->contiguous() : at::Tensor(),
                           positions ? positions->contiguous() : batch->positions},
                          batch->rows, plan_ ? plan_->program() : models::bert::fused());
  });
}

}  // namespace seqfuse::api
