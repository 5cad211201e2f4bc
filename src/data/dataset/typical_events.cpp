#include "data/dataset/typical_events.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace seqfuse::data {
namespace {

constexpr int64_t kUsers = 1000;

template <class Visit>
void for_some_users(const Dataset& dataset, const Visit& visit) {
  const int64_t users = dataset.num_users(), sampled = std::min(users, kUsers);
  for (int64_t i = 0; i < sampled; ++i) visit(dataset.user(i * users / sampled));
}

}  // namespace

int64_t typical_gap(const Dataset& dataset) {
  std::vector<uint64_t> gaps;  // unsigned: gaps between int64 times may exceed int64
  for_some_users(dataset, [&](const UserSequence& user) {
    for (size_t i = 1; i < user.timestamps.size(); ++i) {
      gaps.push_back(static_cast<uint64_t>(user.timestamps[i]) -
                     static_cast<uint64_t>(user.timestamps[i - 1]));
    }
  });
  if (gaps.empty()) return 0;
  const auto middle = gaps.begin() + std::ssize(gaps) / 2;
  std::nth_element(gaps.begin(), middle, gaps.end());
  return static_cast<int64_t>(std::min<uint64_t>(*middle, std::numeric_limits<int64_t>::max()));
}

int64_t most_common_action(const Dataset& dataset) {
  std::vector<int64_t> counts(std::max<int64_t>(dataset.manifest().num_actions, 1));
  for_some_users(dataset, [&](const UserSequence& user) {
    for (const int64_t action : user.actions) ++counts.at(action);
  });
  return std::max_element(counts.begin(), counts.end()) - counts.begin();
}

TypicalEvents TypicalEvents::of(const Dataset& dataset) {
  return {.gap = typical_gap(dataset), .action = most_common_action(dataset)};
}

}  // namespace seqfuse::data
