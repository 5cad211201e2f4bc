#include "training/evaluation/baselines.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "metrics/retrieval_metrics.h"
#include "training/evaluation/ranking_labels.h"
#include "training/evaluation/seen_items.h"

namespace seqfuse::training {
namespace {

// Events of the training windows per item.
class Popularity {
 public:
  Popularity(const data::Dataset& dataset, const std::vector<data::Sample>& train)
      : counts_(dataset.num_items() + 1) {
    for (const data::Sample& sample : train) {
      const auto items = dataset.user(sample.user).items;
      for (int64_t i = sample.begin; i < sample.end; ++i) ++counts_[items[i]];
    }
    sorted_.assign(counts_.begin() + 1, counts_.end());
    std::sort(sorted_.begin(), sorted_.end());
  }

  int64_t count(int64_t item) const { return counts_[item]; }

  // Number of catalogue items with at least this count.
  int64_t num_at_least(int64_t count) const {
    return sorted_.end() - std::lower_bound(sorted_.begin(), sorted_.end(), count);
  }

 private:
  std::vector<int64_t> counts_, sorted_;
};

// How often an item directly followed another in the training windows; sparse.
class Transitions {
 public:
  struct Next {
    int64_t item, count;
  };

  Transitions(const data::Dataset& dataset, const std::vector<data::Sample>& train)
      : offsets_(dataset.num_items() + 2) {
    std::vector<std::pair<int64_t, int64_t>> pairs;
    for (const data::Sample& sample : train) {
      const auto items = dataset.user(sample.user).items;
      for (int64_t i = sample.begin + 1; i < sample.end; ++i)
        pairs.emplace_back(items[i - 1], items[i]);
    }
    std::sort(pairs.begin(), pairs.end());
    for (size_t begin = 0, end; begin < pairs.size(); begin = end) {
      for (end = begin; end < pairs.size() && pairs[end] == pairs[begin];) ++end;
      next_.push_back({pairs[begin].second, static_cast<int64_t>(end - begin)});
      ++offsets_[pairs[begin].first + 1];
    }
    for (size_t i = 1; i < offsets_.size(); ++i) offsets_[i] += offsets_[i - 1];
  }

  // Ascending by item.
  std::span<const Next> after(int64_t item) const {
    return std::span(next_).subspan(offsets_[item], offsets_[item + 1] - offsets_[item]);
  }

  int64_t count(int64_t from, int64_t to) const {
    const auto row = after(from);
    const auto found =
        std::lower_bound(row.begin(), row.end(), to,
                         [](const Next& next, int64_t item) { return next.item < item; });
    return found != row.end() && found->item == to ? found->count : 0;
  }

 private:
  std::vector<int64_t> offsets_;
  std::vector<Next> next_;
};

// The target's rank by popularity; ties count against it, as for a model.
int64_t popularity_rank(const Popularity& popularity, int64_t target,
                        const std::vector<int64_t>& seen) {
  const int64_t bar = popularity.count(target);
  int64_t rank = popularity.num_at_least(bar);  // includes the target
  for (const int64_t item : seen) {
    if (item != 0 && item != target) rank -= popularity.count(item) >= bar;
  }
  return rank;
}

// The target's rank by (transitions from the last item, popularity).
int64_t markov_rank(const Transitions& transitions, const Popularity& popularity, int64_t last,
                    int64_t target, const std::vector<int64_t>& seen) {
  const auto score = [&](int64_t item) {
    return std::pair(transitions.count(last, item), popularity.count(item));
  };
  const auto bar = score(target);
  int64_t rank = 0;  // items that score at least as high as the target, including it
  if (bar.first == 0) {
    rank += popularity.num_at_least(bar.second);
    for (const auto& next : transitions.after(last)) {
      if (next.item != 0) rank += popularity.count(next.item) < bar.second;
    }
  } else {
    for (const auto& next : transitions.after(last)) {
      if (next.item != 0) rank += std::pair(next.count, popularity.count(next.item)) >= bar;
    }
  }
  for (const int64_t item : seen) {
    if (item != 0 && item != target) rank -= score(item) >= bar;
  }
  return rank;
}

// Mean label per item and column over the training windows, shrunk towards the mean of all items by
// a prior of kPriorEvents events.
class ItemMeans {
 public:
  static constexpr double kPriorEvents = 10;

  ItemMeans(const data::Dataset& dataset, const std::vector<data::Sample>& train,
            const models::hstu::ModelSpec& spec, int64_t width)
      : width_(width),
        events_(dataset.num_items() + 1),
        sums_(events_.size() * width),
        prior_(width) {
    std::vector<uint8_t> labels(width);
    double total = 0;
    for (const data::Sample& sample : train) {
      const data::UserSequence user = dataset.user(sample.user);
      for (int64_t i = sample.begin; i < sample.end; ++i) {
        labels_of_action(spec, user.actions[i], labels);
        ++total;
        ++events_[user.items[i]];
        for (int64_t c = 0; c < width; ++c) {
          sums_[user.items[i] * width + c] += labels[c];
          prior_[c] += labels[c];
        }
      }
    }
    // One extra event per label keeps probabilities away from 0 and 1.
    const double outcomes = width == spec.ranking.num_tasks ? 2 : static_cast<double>(width);
    for (double& prior : prior_) prior = (prior + 1) / (total + outcomes);
  }

  double probability(int64_t item, int64_t column) const {
    return (static_cast<double>(sums_[item * width_ + column]) + kPriorEvents * prior_[column]) /
           (static_cast<double>(events_[item]) + kPriorEvents);
  }

 private:
  int64_t width_;
  std::vector<int64_t> events_, sums_;
  std::vector<double> prior_;
};

}  // namespace

metrics::NamedMetrics retrieval_baselines(const data::Dataset& dataset, const data::Split& split,
                                          const std::vector<data::Sample>& samples,
                                          const config::RetrievalArgs& args) {
  const Popularity popularity(dataset, split.train);
  const Transitions transitions(dataset, split.train);
  metrics::RetrievalMetrics by_popularity(args.eval_metrics), by_markov(args.eval_metrics);
  for (const data::Sample& sample : samples) {
    const int64_t target = target_item(dataset, sample);
    if (target == 0) {  // unknown: always ranks last
      by_popularity.add(dataset.num_items() + 1);
      by_markov.add(dataset.num_items() + 1);
      continue;
    }
    const std::vector<int64_t> seen =
        args.filter_seen ? seen_items(dataset, sample) : std::vector<int64_t>{};
    by_popularity.add(popularity_rank(popularity, target, seen));
    const int64_t last =
        sample.end - 1 > sample.begin ? dataset.user(sample.user).items[sample.end - 2] : 0;
    by_markov.add(markov_rank(transitions, popularity, last, target, seen));
  }
  return {{"popularity", by_popularity.compute()}, {"Markov, first order", by_markov.compute()}};
}

metrics::NamedMetrics ranking_baselines(const data::Dataset& dataset, const data::Split& split,
                                        const std::vector<data::Sample>& samples,
                                        const models::hstu::ModelSpec& spec) {
  metrics::RankingMetrics metrics = ranking_metrics(spec, dataset.manifest());
  const int64_t width = metrics.width();
  const ItemMeans means(dataset, split.train, spec, width);
  std::vector<float> scores(width);
  std::vector<uint8_t> labels(width);
  for (const data::Sample& sample : samples) {
    const data::UserSequence user = dataset.user(sample.user);
    const int64_t first =
        sample.num_candidates > 0 ? sample.end - sample.num_candidates : sample.begin;
    for (int64_t i = first; i < sample.end; ++i) {
      for (int64_t c = 0; c < width; ++c) {
        const double p = means.probability(user.items[i], c);
        scores[c] = static_cast<float>(metrics.is_classes() ? std::log(p) : std::log(p / (1 - p)));
      }
      labels_of_action(spec, user.actions[i], labels);
      metrics.add(sample.user, scores, labels);
    }
  }
  return {{"item mean", metrics.compute()}};
}

metrics::NamedMetrics baselines(const data::Dataset& dataset, const data::Split& split,
                                const std::vector<data::Sample>& samples,
                                const models::hstu::ModelSpec& spec) {
  dataset.check_unchanged(split.train.data(), std::ssize(split.train));
  dataset.check_unchanged(samples.data(), std::ssize(samples));
  return spec.task == models::hstu::Task::retrieval
             ? retrieval_baselines(dataset, split, samples, spec.retrieval)
             : ranking_baselines(dataset, split, samples, spec);
}

}  // namespace seqfuse::training
