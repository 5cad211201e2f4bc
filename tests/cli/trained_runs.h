// A small dataset and runs on it, created once for all tests that use them.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <stdexcept>
#include <string>

#include "tests/cli/seqfuse_process.h"

namespace seqfuse {

class TrainedRuns {
 public:
  static const TrainedRuns& get() {
    static const TrainedRuns runs;
    return runs;
  }

  std::string data() const { return path("data"); }
  std::string other_data() const { return path("other_data"); }  // with another vocabulary
  std::string log() const { return path("log.csv"); }            // of data()
  std::string retrieval() const { return path("retrieval"); }    // hstu: reads actions, context
  std::string research() const { return path("research"); }      // retrieval; reads times
  std::string ranking() const { return path("ranking"); }

 private:
  static constexpr const char* kCommon = R"(
DatasetArgs.dataset_name = 'csv'
DatasetArgs.max_history_seqlen = 10
DatasetArgs.split = 'leave_one_out'
NetworkArgs.num_layers = 1
NetworkArgs.hidden_size = 16
NetworkArgs.num_attention_heads = 1
NetworkArgs.kv_channels = 16
OptimizerArgs.optimizer_str = 'adamw'
OptimizerArgs.learning_rate = 0.01
TrainerArgs.train_batch_size = 8
TrainerArgs.eval_batch_size = 8
TrainerArgs.max_train_iters = 6
TrainerArgs.eval_interval = 3
)";

  TrainedRuns() {
    // 40 users walk around a ring of 15 items; "item x" first, so that ids are not numbers.
    write_log("log.csv", 40);
    write_log("other.csv", 20);
    std::ofstream(path("retrieval.gin")) << kCommon
                                         << "RetrievalArgs.negatives = 'full'\n"
                                            "RetrievalArgs.eval_metrics = ['HR@3', 'MRR']\n";
    std::ofstream(path("research.gin")) << kCommon
                                        << "RetrievalArgs.negatives = 'full'\n"
                                           "RetrievalArgs.eval_metrics = ['MRR']\n"
                                           "NetworkArgs.architecture = 'hstu_research'\n";
    std::ofstream(path("ranking.gin")) << kCommon
                                       << "RankingArgs.prediction_head_arch = [8, 5]\n"
                                          "RankingArgs.eval_metrics = ['AUC', 'ACC']\n"
                                          "DatasetArgs.max_num_candidates = 1\n";
    for (const auto& [log, directory] :
         {std::pair("log.csv", data()), {"other.csv", other_data()}}) {
      must(fmt::format(
          "preprocess --dataset-name csv --input {} --output {} --time-column timestamp "
          "--action-column rating --context-columns country",
          path(log), directory));
    }
    for (const std::string run : {"retrieval", "research", "ranking"}) {
      must(fmt::format("train {0} --gin-config-file {1} --data {2} --output {3}",
                       run == "ranking" ? run : "retrieval", path(run + ".gin"), data(),
                       path(run)));
    }
  }

  std::string path(const std::string& name) const { return (directory_.path() / name).string(); }

  void write_log(const std::string& name, int users) const {
    std::ofstream log(path(name));
    log << "user_id,item_id,timestamp,rating,country\n";
    for (int u = 0; u < users; ++u) {
      for (int i = 0; i < 8; ++i) {
        log << 'u' << u << ",item" << (u * 3 + i) % (users == 40 ? 15 : 12) << ',' << 1000 + 60 * i
            << ',' << i % 5 << ",country" << u % 3 << '\n';
      }
    }
  }

  static void must(const std::string& arguments) {
    const Outcome outcome = run_seqfuse(arguments);
    if (outcome.code != 0) throw std::runtime_error(arguments + "\n" + outcome.out + outcome.err);
  }

  TemporaryDirectory directory_;
};

}  // namespace seqfuse
