#include "models/bert/named_tensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/names.h"

namespace seqfuse::models::bert {
using at::Tensor;
namespace {

constexpr std::string_view kPrefix = "bert.";

// A tensor of a head, or a buffer, that an encoder does not use. name: without the prefix.
bool is_not_of_the_encoder(std::string_view name) {
  return name.starts_with("pooler.") || name.starts_with("cls.") ||
         name.starts_with("classifier.") || name.starts_with("qa_outputs.") ||
         name == "embeddings.position_ids";
}

}  // namespace

NamedTensors::NamedTensors(const TensorMap& tensors, at::TensorOptions options, std::string source)
    : tensors_(tensors), options_(options), source_(std::move(source)) {
  for (const auto& [name, tensor] : tensors) {
    std::string_view inner = name;
    if (inner.starts_with(kPrefix)) inner.remove_prefix(kPrefix.size());
    if (!is_not_of_the_encoder(inner)) unused_.push_back(name);
    prefixed_ = prefixed_ || name.starts_with(kPrefix);
  }
}

Tensor NamedTensors::take(const std::string& name, const std::vector<int64_t>& shape) {
  const auto found = find(name);
  std::erase(unused_, found->first);
  const Tensor& given = found->second;
  if (given.sizes() != at::IntArrayRef(shape)) {
    throw_error<DataError>("{}: {} is [{}]; config.json makes it [{}]", source_, found->first,
                           fmt::join(given.sizes(), ", "), fmt::join(shape, ", "));
  }
  if (!given.is_floating_point()) {
    throw_error<DataError>("{}: {} is {}; expected float32, float16 or bfloat16", source_,
                           found->first, c10::toString(given.scalar_type()));
  }
  return converted(found->first, given);
}

void NamedTensors::take_norm(const std::string& name, int64_t size, Tensor& weight, Tensor& bias) {
  weight = take(name + ".weight", {size});
  bias = take(name + ".bias", {size});
}

void NamedTensors::take_linear(const std::string& name, int64_t outputs, int64_t inputs,
                               Tensor& weight, Tensor& bias) {
  weight = take(name + ".weight", {outputs, inputs});
  bias = take(name + ".bias", {outputs});
}

void NamedTensors::expect_all_used() const {
  if (unused_.empty()) return;
  throw_error<DataError>(
      "{}: {} tensors are not of a BERT as config.json describes it, the "
      "first is {}",
      source_, unused_.size(), unused_.front());
}

TensorMap::const_iterator NamedTensors::find(const std::string& name) const {
  // A classifier is beside the encoder, a pooler within it.
  const bool inside = !name.starts_with("classifier.");
  const std::string full = (prefixed_ && inside ? std::string(kPrefix) : "") + name;
  auto found = tensors_.find(full);
  if (found != tensors_.end()) return found;
  for (const auto& [now, once] : {std::pair{".weight", ".gamma"}, {".bias", ".beta"}}) {
    const std::string ending = std::string("LayerNorm") + now;
    if (!full.ends_with(ending)) continue;
    found = tensors_.find(full.substr(0, full.size() - std::string_view(now).size()) + once);
    if (found != tensors_.end()) return found;
  }
  throw_error<DataError>("{}: the tensor {} is missing{}", source_, full,
                         did_you_mean(full, unused_));
}

Tensor NamedTensors::converted(const std::string& name, const Tensor& given) const {
  Tensor result = given.to(options_, /*non_blocking=*/false, /*copy=*/true);
  if (all_finite(result)) return result;
  SEQFUSE_CHECK_AS(DataError, all_finite(given), "{}: {} has values that are NaN or infinite",
                   source_, name);
  throw_error<DataError>("{}: {} has values beyond the range of {}; choose another dtype", source_,
                         name, c10::toString(result.scalar_type()));
}

}  // namespace seqfuse::models::bert
