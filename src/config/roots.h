// What each verb reads of a gin file: the classes that it asks for, and no others.
//
// visit(v) names the members of a root in the order of the operative configuration:
//   v(args)              its required parameters must be bound
//   v.if_bound(args)     the same where a parameter of the class is bound; else the defaults
//   v.one_of(args, other)  other, std::optional, where a parameter of its class is bound; else args
//   v.tables(tables)     an instance for each scope
#pragma once

#include <optional>
#include <vector>

#include "config/args.h"

namespace seqfuse::config {

// `train`. Whether RankingArgs is bound tells the tasks apart.
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

// `evaluate`, of a run's operative configuration: which windows, in batches of which size. The model
// is described by its checkpoint.
struct EvaluateConfig {
  TrainerArgs trainer;
  DatasetArgs dataset;

  template <class V>
  void visit(V& v) {
    v(trainer);
    v(dataset);
  }

  bool operator==(const EvaluateConfig&) const = default;
};

}  // namespace seqfuse::config
