// Ranks one target per user over a full catalogue and measures users/s and peak memory. Random unit
// vectors replace a model's states and item rows.
//
//   full_catalogue_eval [users items dim]      default 10000 200000 64; prints JSON
#include <sys/resource.h>
#include <torch/nn/functional.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "base/cpu.h"
#include "base/parallel.h"
#include "base/random.h"
#include "training/evaluation/catalogue.h"

namespace {

double peak_mebibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

torch::Tensor unit_rows(int64_t n, int64_t dim) {
  return torch::nn::functional::normalize(torch::randn({n, dim}),
                                          torch::nn::functional::NormalizeFuncOptions().dim(1));
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, int64_t otherwise) {
    return argc > i ? std::strtoll(argv[i], nullptr, 10) : otherwise;
  };
  const int64_t users = argument(1, 10'000), items = argument(2, 200'000), dim = argument(3, 64);
  constexpr int64_t kBatch = 128, kSeen = 200, kTop = 10;
  torch::manual_seed(1);
  seqfuse::Random random(1);
  const torch::Tensor queries = unit_rows(users, dim), rows = unit_rows(items + 1, dim);
  std::vector<int64_t> targets;
  seqfuse::training::ItemLists seen;
  for (int64_t user = 0; user < users; ++user) {
    targets.push_back(1 + static_cast<int64_t>(random.below(items)));
    auto& history = seen.emplace_back();
    for (int64_t i = 0; i < kSeen; ++i)
      history.push_back(1 + static_cast<int64_t>(random.below(items)));
    std::sort(history.begin(), history.end());
    history.erase(std::unique(history.begin(), history.end()), history.end());
  }
  // Calls scan(first user, queries, their seen items) for each batch.
  const auto seconds_of = [&](auto&& scan) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t begin = 0; begin < users; begin += kBatch) {
      const int64_t end = std::min(users, begin + kBatch);
      scan(begin, queries.slice(0, begin, end),
           seqfuse::training::ItemLists(seen.begin() + begin, seen.begin() + end));
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const double before = peak_mebibytes();
  const seqfuse::training::Catalogue catalogue(rows);
  double rank_sum = 0, score_sum = 0;
  const double seconds = seconds_of([&](int64_t begin, const auto& batch, const auto& lists) {
    const std::span<const int64_t> of_batch(targets.data() + begin, batch.size(0));
    rank_sum += catalogue.ranks(batch, of_batch, lists).sum().template item<double>();
  });
  const double top_seconds = seconds_of([&](int64_t, const auto& batch, const auto& lists) {
    const auto top = catalogue.top(batch, kTop, lists);
    for (int64_t b = 0; b < top.size(); ++b) score_sum += top[b][0].score;
  });
  const nlohmann::json result = {
      {"name", "full_catalogue_eval"},
      {"cpu", seqfuse::this_cpu().model},
      {"threads", seqfuse::num_threads()},
      {"users", users},
      {"items", items},
      {"dim", dim},
      {"seconds", seconds},
      {"users_per_second", static_cast<double>(users) / seconds},
      {"gflops", 2e-9 * static_cast<double>(users) * static_cast<double>(items) *
                     static_cast<double>(dim) / seconds},
      {"mean_rank", rank_sum / static_cast<double>(users)},
      {"top_seconds", top_seconds},
      {"top_users_per_second", static_cast<double>(users) / top_seconds},
      {"mean_best_score", score_sum / static_cast<double>(users)},
      {"peak_mib_before", before},
      {"peak_mib", peak_mebibytes()}};
  std::puts(result.dump(2).c_str());
}
