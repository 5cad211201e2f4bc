// Rules beyond types: ranges, sets of names, mutual exclusions. Each throws UsageError with the
// location in the file, what was given and what was expected.
#pragma once

#include <string>
#include <string_view>

#include "config/bindings.h"
#include "config/roots.h"

namespace seqfuse::config {

// An instance of a class in a configuration, for messages.
class Instance {
 public:
  Instance(const Bindings& bindings, std::string class_name, std::string scope)
      : bindings_(bindings), class_name_(std::move(class_name)), scope_(std::move(scope)) {}

  // "file.gin:3:32: scope/Class.parameter"; without the location if it is not bound.
  std::string parameter(const std::string& name) const;

 private:
  const Bindings& bindings_;
  std::string class_name_, scope_;
};

void validate(const TrainerArgs& args, const Instance& instance);
void validate(const EvaluationBatches& args, const Instance& instance);
void validate(const DatasetArgs& args, const Instance& instance);
void validate(const NetworkArgs& args, const Instance& instance);
void validate(const EmbeddingArgs& args, const Instance& instance);
void validate(const DynamicEmbeddingArgs& args, const Instance& instance);
void validate(const OptimizerArgs& args, const Instance& instance);
void validate(const TensorModelParallelArgs& args, const Instance& instance);
void validate(const RankingArgs& args, const Instance& instance);
void validate(const RetrievalArgs& args, const Instance& instance);
void validate(const RandomDistribution& args, const Instance& instance);
void validate(const FeatureArgs& args, const Instance& instance);
void validate(const BenchmarkDatasetArgs& args, const Instance& instance);

// Checks across classes. ranking: RankingArgs is bound.
void validate(const Config& config, bool ranking, const Bindings& bindings);
inline void validate(const EvaluateConfig&, bool, const Bindings&) {}

}  // namespace seqfuse::config
