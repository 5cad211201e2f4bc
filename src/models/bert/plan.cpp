#include "models/bert/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/gpu.h"
#include "fusion/legality.h"

namespace seqfuse::models::bert {
namespace {

using nlohmann::json;

constexpr int kPlanFormat = 1;

json json_of(const Plan& plan) {
  return {{"format", kPlanFormat},
          {"model",
           {{"hidden", plan.hidden},
            {"heads", plan.heads},
            {"inner", plan.inner},
            {"layers", plan.layers},
            {"activation", plan.activation}}},
          {"batch", plan.batch},
          {"seq", plan.seq},
          {"mask", plan.mask},
          {"dtype", plan.dtype},
          {"card", plan.card},
          {"scheme", plan.scheme},
          {"choices", plan.choices},
          {"milliseconds", plan.milliseconds},
          {"default_milliseconds", plan.default_milliseconds},
          {"version", plan.version},
          {"date", plan.date}};
}

Plan plan_of(const json& from) {
  SEQFUSE_CHECK_AS(DataError, from.at("format").get<int>() == kPlanFormat,
                   "its format is {}; this seqfuse reads {}", from.at("format").get<int>(),
                   kPlanFormat);
  const json& model = from.at("model");
  Plan plan{.hidden = model.at("hidden"),
            .heads = model.at("heads"),
            .inner = model.at("inner"),
            .layers = model.at("layers"),
            .activation = model.at("activation"),
            .batch = from.at("batch"),
            .seq = from.at("seq"),
            .mask = from.at("mask"),
            .dtype = from.at("dtype"),
            .card = from.at("card"),
            .scheme = from.at("scheme"),
            .choices = from.at("choices").get<Choices>(),
            .milliseconds = from.at("milliseconds"),
            .default_milliseconds = from.at("default_milliseconds"),
            .version = from.at("version"),
            .date = from.at("date")};
  SEQFUSE_CHECK_AS(DataError, plan.batch > 0 && plan.seq > 0,
                   "its shape is ({}, {}); expected a batch and a length of 1 or more", plan.batch,
                   plan.seq);
  const fusion::Legality legality = fusion::check(fusion::Scheme::from_number(plan.scheme));
  SEQFUSE_CHECK_AS(DataError, legality.holds(), "its scheme {} is not legal; the legal form is {}",
                   plan.scheme, legality.legal.number());
  return plan;
}

}  // namespace

Plan load_plan(const std::filesystem::path& file) {
  try {
    return plan_of(json::parse(read_file(file)));
  } catch (const json::exception& error) {
    throw_error<DataError>("{} is no plan of `seqfuse tune`: {}", file.string(), error.what());
  } catch (const UsageError& error) {
    throw_error<DataError>("{}: {}", file.string(), error.what());
  } catch (const DataError& error) {
    throw_error<DataError>("{}: {}", file.string(), error.what());
  }
}

void save_plan(const Plan& plan, const std::filesystem::path& file) {
  write_file_atomically(file, json_of(plan).dump(1) + "\n");
}

std::string card_of(at::Device device) {
  if (device.is_cpu()) return "cpu";
  const GpuProbe probe = probe_gpus();
  const auto index = static_cast<size_t>(std::max<int>(device.index(), 0));
  return index < probe.gpus.size() ? probe.gpus[index].name : "unknown GPU";
}

const char* name_of(Activation activation) {
  return activation == Activation::gelu_erf    ? "gelu"
         : activation == Activation::gelu_tanh ? "gelu_new"
                                               : "relu";
}

std::string why_not_for(const Plan& plan, const Model& model) {
  const Config& config = model.config();
  const auto model_text = [](int64_t hidden, int64_t heads, int64_t inner, int64_t layers,
                             const std::string& activation) {
    return fmt::format("{} layers of {} wide, {} heads, {} inner, {}", layers, hidden, heads, inner,
                       activation);
  };
  const std::string wanted =
      model_text(plan.hidden, plan.heads, plan.inner, plan.layers, plan.activation);
  const std::string given =
      model_text(config.hidden_size, config.num_heads, config.intermediate_size, config.num_layers,
                 name_of(config.activation));
  if (wanted != given)
    return fmt::format("the plan is for a BERT of {}, and the model has {}", wanted, given);
  const std::string dtype = c10::getDtypeNames(model.dtype()).first;
  if (plan.dtype != dtype)
    return fmt::format("the plan is for {}, and the model is {}", plan.dtype, dtype);
  if (const std::string card = card_of(model.device()); plan.card != card)
    return fmt::format("the plan is for the card '{}', and this is '{}'; `seqfuse tune` makes one",
                       plan.card, card);
  return "";
}

PlannedProgram::PlannedProgram(const Plan& plan, const Model& model)
    : plan_(plan), program_([&] {
        if (const std::string why = bert::why_not_for(plan, model); !why.empty())
          throw UsageError(why);
        return SchemeProgram(fusion::Scheme::from_number(plan.scheme),
                             {.config = model.config(), .device = model.device(), .cache = {}},
                             plan.choices);
      }()) {}

std::string PlannedProgram::why_not_for(std::span<const int64_t> lengths) const {
  const bool equal = static_cast<int64_t>(lengths.size()) == plan_.batch &&
                     std::all_of(lengths.begin(), lengths.end(),
                                 [&](int64_t length) { return length == plan_.seq; });
  if (equal) return "";
  const auto [least, most] = std::minmax_element(lengths.begin(), lengths.end());
  return fmt::format("the plan is for {} sequence{} of {} tokens, and the batch has {} of {} to {}",
                     plan_.batch, plan_.batch == 1 ? "" : "s", plan_.seq, lengths.size(),
                     lengths.empty() ? 0 : *least, lengths.empty() ? 0 : *most);
}

void PlannedProgram::prepare(Rows& rows, at::Device device) const {
  if (program().needs_dense_mask()) rows.dense = rows.dense_mask(device);
}

}  // namespace seqfuse::models::bert
