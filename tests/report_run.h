// A handwritten run directory like those of `seqfuse train`.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "report/run_files.h"

namespace seqfuse {

struct HandMadeRun {
  std::string operative =
      "# Every parameter in force.\n\n"
      "TrainerArgs.seed = 1\n"
      "TrainerArgs.early_stopping_metric = ''\n"
      "DatasetArgs.dataset_name = 'csv'\n\n"
      "RetrievalArgs.eval_metrics = ['HR@10', 'MRR', 'HR@5']\n";
  std::string metrics =
      R"({"epoch":1,"learning_rate":0.1,"loss":2.5,"seconds":1.5,"step":10,"tokens_per_second":1000.0})"
      "\n"
      R"({"epoch":1,"evaluation":{"HR@10":0.5,"HR@5":0.25,"MRR":0.2},"step":10})"
      "\n"
      R"({"epoch":2,"learning_rate":0.1,"loss":1.5,"seconds":2.5,"step":20,"tokens_per_second":1200.0})"
      "\n"
      R"({"epoch":2,"evaluation":{"HR@10":0.4,"HR@5":0.3,"MRR":null},"step":20})"
      "\n";
  report::RunInfo info = {.task = config::Task::retrieval,
                          .dataset_path = "/no/such/dataset",
                          .dataset_hash = "xxh3:1",
                          .seed = 1,
                          .version = "0.1.0"};

  void write(const std::filesystem::path& path) const {
    std::filesystem::create_directories(path);
    std::ofstream(path / "operative_config.gin") << operative;
    std::ofstream(path / "metrics.jsonl") << metrics;
    report::write_run_info(path, info);
  }
};

}  // namespace seqfuse
