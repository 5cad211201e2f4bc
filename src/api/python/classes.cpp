// Registers the classes. Python calls their methods without its lock (torch.classes releases it).
#include <torch/library.h>

#include "api/python/bert_encoder.h"
#include "api/python/cache_rule.h"
#include "api/python/dynamic_rows.h"
#include "api/python/language_model.h"
#include "api/python/watch.h"

namespace seqfuse::api {

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  using Self = c10::intrusive_ptr<LanguageModel>;
  library.class_<CacheRule>("CacheRule")
      .def(torch::init<std::string, int64_t, int64_t, int64_t, int64_t>())
      .def("text", [](const c10::intrusive_ptr<CacheRule>& self) { return self->rule.text(); });
  library.class_<Watch>("Watch")
      .def(torch::init<>())
      .def("take", &Watch::take)
      .def("end_text", &Watch::end_text)
      .def("stop", &Watch::stop);
  library.class_<LanguageModel>("LanguageModel")
      .def(torch::init<std::string, std::string, at::Device>())
      .def("vocab_size", [](const Self& self) { return self->config().vocab_size; })
      .def("num_layers", [](const Self& self) { return self->config().num_layers; })
      .def("hidden_size", [](const Self& self) { return self->config().hidden_size; })
      .def("trained_length",
           [](const Self& self) { return self->config().max_position_embeddings; })
      .def("eos_ids", [](const Self& self) { return self->config().eos_ids; })
      .def("dtype", [](const Self& self) { return std::string(c10::toString(self->dtype())); })
      .def("generate", &LanguageModel::generate)
      .def("losses", &LanguageModel::losses)
      .def("hidden_states", &LanguageModel::hidden_states);
  using Encoder = c10::intrusive_ptr<BertEncoder>;
  library.class_<EncoderBatch>("EncoderBatch")
      .def("rows", [](const c10::intrusive_ptr<EncoderBatch>& self) { return self->rows.count(); });
  library.class_<BertEncoder>("BertEncoder")
      .def(torch::init<std::string, std::string, at::Device>())
      .def("vocab_size", [](const Encoder& self) { return self->config().vocab_size; })
      .def("type_vocab_size", [](const Encoder& self) { return self->config().type_vocab_size; })
      .def("hidden_size", [](const Encoder& self) { return self->config().hidden_size; })
      .def("num_layers", [](const Encoder& self) { return self->config().num_layers; })
      .def("longest", [](const Encoder& self) { return self->config().max_position_embeddings; })
      .def("dtype", [](const Encoder& self) { return c10::getDtypeNames(self->dtype()).first; })
      .def("use_plan", &BertEncoder::use_plan)
      .def("batch", &BertEncoder::batch)
      .def("states", &BertEncoder::states);
  library.class_<DynamicBatch>("DynamicBatch");
  library.class_<DynamicRows>("DynamicRows")
      .def(torch::init<DynamicRows::Numbers, c10::Dict<std::string, double>,
                       c10::Dict<std::string, std::string>, at::Device>())
      .def("fetch", &DynamicRows::fetch)
      .def("look_up", &DynamicRows::look_up)
      .def("rows", &DynamicRows::rows)
      .def("prefetch", &DynamicRows::prefetch)
      .def("update", &DynamicRows::update)
      .def("erase", &DynamicRows::erase)
      .def("clear", &DynamicRows::clear)
      .def("check_failures", &DynamicRows::check_failures)
      .def("contains", &DynamicRows::contains)
      .def("counts", &DynamicRows::counts)
      .def("take_evicted", &DynamicRows::take_evicted)
      .def("contents", &DynamicRows::contents)
      .def("start_snapshot", &DynamicRows::start_snapshot)
      .def("copy_snapshot", &DynamicRows::copy_snapshot)
      .def("finish_snapshot", &DynamicRows::finish_snapshot)
      .def("load", &DynamicRows::load)
      .def("shared_row", &DynamicRows::shared_row);
}

}  // namespace seqfuse::api
