// torch.classes.seqfuse.BertEncoder: a BERT that Python loads and runs.
#pragma once

#include <torch/custom_class.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "models/bert/model.h"
#include "models/bert/plan.h"

namespace seqfuse::api {

// The lengths and masks of a batch, on a device. Constant.
struct EncoderBatch : torch::CustomClassHolder {
  models::bert::Rows rows;
  at::Tensor positions;  // int64 [rows]
};

// Loaded once, then constant: batch and states may run in several threads.
class BertEncoder : public torch::CustomClassHolder {
 public:
  // directory: of a Hugging Face BERT. dtype: float32, float64, float16, bfloat16, or auto
  // (models::bert::default_dtype). Throws ValueError for a folder that holds something else, and for a
  // dtype that the device has no operators for.
  BertEncoder(const std::string& directory, const std::string& dtype, at::Device device);

  // From now on all batches run by a plan of `seqfuse tune`. Not beside other calls. Throws ValueError for
  // a file that is none, and for a plan of another model, dtype or card.
  void use_plan(const std::string& file);

  const models::bert::Config& config() const { return model_->config(); }
  at::ScalarType dtype() const { return model_->dtype(); }

  // mask: as models::bert::SequenceMask::parse takes it. On a GPU, waits for it once. Throws ValueError:
  // a length below 0 or beyond the model's, an unknown mask; with a plan, another shape or mask than its.
  c10::intrusive_ptr<EncoderBatch> batch(const std::vector<int64_t>& lengths,
                                         const std::vector<std::string>& mask) const;

  // [rows, H]. ids, types, positions: int64 [rows] on the model's device, whose values are not checked;
  // absent types are 0, absent positions count from 0 in each sequence. Never waits for a GPU. Throws
  // ValueError for another shape, dtype or device.
  at::Tensor states(const at::Tensor& ids, const std::optional<at::Tensor>& types,
                    const std::optional<at::Tensor>& positions,
                    const c10::intrusive_ptr<EncoderBatch>& batch) const;

 private:
  std::optional<models::bert::Model> model_;
  std::optional<models::bert::PlannedProgram> plan_;
  mutable std::mutex mutex_;
  mutable std::map<std::vector<std::string>, models::bert::SequenceMask> masks_;
};

}  // namespace seqfuse::api
