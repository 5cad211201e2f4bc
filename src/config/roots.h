// Which classes of a gin file each verb reads.
//
// visit(v) names the members of a root in the order of the operative configuration:
//   v(args)                required parameters must be bound
//   v.if_bound(args)       the same if any parameter of the class is bound; else the defaults
//   v.one_of(args, other)  other (std::optional) if any parameter of its class is bound; else args
//   v.tables(tables)       one instance per scope
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/args.h"

namespace seqfuse::config {

// Root of `train`. Whether RankingArgs is bound distinguishes the tasks.
struct Config {
  TrainerArgs trainer;
  DatasetArgs dataset;
  NetworkArgs network;
  OptimizerArgs optimizer;
  TensorModelParallelArgs tensor_model_parallel;
  RankingArgs ranking;
  RetrievalArgs retrieval;
  std::vector<EmbeddingArgs> embeddings;  // empty: sizes from the dataset's manifest
  std::vector<DynamicEmbeddingArgs> dynamic_embeddings;
  std::optional<BenchmarkDatasetArgs> benchmark_dataset;  // instead of DatasetArgs

  template <class V>
  void visit(V& v) {
    v(trainer);
    v.tables(embeddings);
    v.tables(dynamic_embeddings);
    v.one_of(dataset, benchmark_dataset);
    v(network);
    v(optimizer);
    v(tensor_model_parallel);
    v.if_bound(ranking);
    v(retrieval);
  }

  bool operator==(const Config&) const = default;
};

// What `evaluate` reads of TrainerArgs.
struct EvaluationBatches {
  static constexpr const char* kName = TrainerArgs::kName;
  int64_t eval_batch_size = 128;

  template <class V>
  void visit(V& v) {
    v.required(eval_batch_size, "eval_batch_size", "users in an evaluation batch of one process");
  }

  bool operator==(const EvaluationBatches&) const = default;
};

// Root of `evaluate`, which reads a run's operative configuration: which windows, in which batch
// size. The checkpoint describes the model.
struct EvaluateConfig {
  EvaluationBatches trainer;
  DatasetArgs dataset;

  template <class V>
  void visit(V& v) {
    v(trainer);
    v(dataset);
  }

  bool operator==(const EvaluateConfig&) const = default;
};

}  // namespace seqfuse::config
