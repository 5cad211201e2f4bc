// The work of the host in a batch of recommendations, without the model: reading and preparing users,
// assembling the windows of forward passes, keeping and writing answers, which are random items here.
//
//   host_work RUN OUTPUT.csv|.jsonl|.parquet      RUN: a retrieval run, with its dataset; prints JSON
//
// Stages run one after the other, so that the CPU time of each is known: microseconds a user, of all
// threads. users_per_s is what they allow if all overlap and share the cores evenly.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/parallel.h"
#include "base/random.h"
#include "data/batch/append_windows.h"
#include "models/hstu/windows.h"
#include "serving/batch/batch_recommender.h"
#include "serving/batch/recommendation_writer.h"
#include "serving/batch/request_blocks.h"
#include "serving/batch/request_reader.h"
#include "serving/batch/unfinished_batch.h"
#include "serving/trained_run.h"

namespace {

using namespace seqfuse;
constexpr int64_t kTopK = 10, kPassWindows = 800;  // as many as 2^17 events are in MovieLens-1M

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

serving::AnsweredBlock random_answers(const std::vector<serving::UserRequest>& requests,
                                      int64_t num_items, Random& random) {
  serving::AnsweredBlock answers;
  for (const serving::UserRequest& request : requests) {
    serving::UserItems user{.user = request.user};
    for (int64_t i = 0; i < kTopK; ++i) {
      user.items.push_back(1 + static_cast<int64_t>(random.below(num_items)));
      // As the model's: a float32, written as a double.
      user.scores.push_back(static_cast<float>(random.unit()));
    }
    answers.users.push_back(std::move(user));
  }
  return answers;
}

void assemble(std::span<const serving::PreparedRequest> prepared) {
  for (size_t begin = 0; begin < prepared.size(); begin += kPassWindows) {
    std::vector<const data::Batch*> parts;
    for (const auto& request :
         prepared.subspan(begin, std::min<size_t>(kPassWindows, prepared.size() - begin))) {
      parts.push_back(&request.window.batch);
    }
    models::hstu::make_windows(data::joined_windows(parts), models::hstu::Reading::query, at::kCPU);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: host_work RUN OUTPUT.csv|.jsonl|.parquet\n");
    return 2;
  }
  const std::string output = argv[2];
  const serving::TrainedRun run = serving::open_trained_run(argv[1], {});
  const auto reader = serving::read_all_users(*run.dataset);
  serving::RequestBlocks blocks(
      *reader,
      {.most_history = run.predictor->spec().max_history, .top_k = kTopK, .users_are_known = true});
  const serving::BatchRecommender recommender(run, {.top_k = kTopK});
  const serving::UnfinishedBatch unfinished(output, {{"benchmark", "host_work"}});
  unfinished.open(/*resume=*/true);
  Random random(1, 0);
  double reading = 0, preparing = 0, assembling = 0, keeping = 0, writing = 0;
  unfinished.finish([&](const std::filesystem::path& file) {
    const auto writer = serving::make_writer(file, {.format = serving::output_format(output),
                                                    .score_names = recommender.score_names(),
                                                    .vocabulary = *run.vocabulary,
                                                    .about = {}});
    for (int64_t number = 0;; ++number) {
      double last = cpu_seconds();
      const auto lap = [&](double& sum) {
        const double now = cpu_seconds();
        sum += now - last;
        last = now;
      };
      const auto& requests = blocks.next();
      if (requests.empty()) break;
      const std::string key = unfinished.key_of(requests);
      lap(reading);
      {
        const auto prepared = recommender.prepare(requests);
        lap(preparing);
        assemble(prepared);
      }
      lap(assembling);
      const auto answers = random_answers(requests, run.vocabulary->num_items(), random);
      last = cpu_seconds();
      unfinished.keep(number, key, answers);
      lap(keeping);
      writer->add(answers.users);
      lap(writing);
    }
    writer->close();
  });
  const auto per_user = [&](double seconds) {
    return 1e6 * seconds / static_cast<double>(blocks.users());
  };
  const double all = reading + preparing + assembling + keeping + writing;
  const nlohmann::ordered_json result = {
      {"command", "host_work RUN " + std::filesystem::path(output).extension().string()},
      {"machine", this_cpu().model},
      {"threads", num_threads()},
      {"users", blocks.users()},
      {"events", run.dataset->manifest().num_events},
      {"cpu_us_per_user",
       {{"reading", per_user(reading)},
        {"preparing", per_user(preparing)},
        {"assembling", per_user(assembling)},
        {"keeping", per_user(keeping)},
        {"writing", per_user(writing)}}},
      {"users_per_s", num_threads() * static_cast<double>(blocks.users()) / all}};
  std::printf("%s\n", result.dump(1).c_str());
  return 0;
}
