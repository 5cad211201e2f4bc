// A Dataset in memory, for tests: users with items 1, 2, ... or given ones.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "data/dataset/dataset.h"

namespace seqfuse::data {

class MemoryDataset : public Dataset {
 public:
  struct User {
    std::vector<int64_t> items, actions, timestamps;  // the last two may be empty
    std::vector<int64_t> context;                     // a value per feature
  };

  // num_items, num_events and num_users follow from the users; actions are classes.
  explicit MemoryDataset(std::vector<User> users, std::vector<ContextFeature> context = {})
      : users_(std::move(users)) {
    manifest_.dataset_name = "memory";
    manifest_.num_users = std::ssize(users_);
    manifest_.context = std::move(context);
    for (const User& user : users_) {
      manifest_.num_events += std::ssize(user.items);
      manifest_.has_timestamps |= !user.timestamps.empty();
      for (const int64_t item : user.items) {
        manifest_.num_items = std::max(manifest_.num_items, item);
      }
      for (const int64_t action : user.actions) {
        manifest_.action_kind = ActionKind::classes;
        manifest_.num_actions = std::max(manifest_.num_actions, action + 1);
      }
    }
  }

  // One user per length n: items 1..n, actions 0 or 1 in turn, timestamps start, start + step, ...
  // where users start one time unit apart.
  static MemoryDataset of_lengths(const std::vector<int64_t>& lengths, int64_t step = 10) {
    std::vector<User> users;
    for (const int64_t length : lengths) {
      User user{.context = {std::ssize(users) + 1}};
      for (int64_t i = 0; i < length; ++i) {
        user.items.push_back(i + 1);
        user.actions.push_back(i % 2);
        user.timestamps.push_back(std::ssize(users) + step * i);
      }
      users.push_back(std::move(user));
    }
    const auto vocab_size = std::ssize(users) + 1;
    return MemoryDataset(std::move(users), {{"user_id", vocab_size}});
  }

  UserSequence user(int64_t row) const override {
    const User& user = users_.at(row);
    return {user.items, user.actions, user.timestamps};
  }
  int64_t context(int64_t feature, int64_t row) const override {
    return users_.at(row).context.at(feature);
  }
  std::string item_id(int64_t item) const override { return std::to_string(item); }
  std::string item_title(int64_t item) const override { return "Item " + std::to_string(item); }
  std::optional<int64_t> find_item(std::string_view raw_id) const override {
    const int64_t item = std::stoll(std::string(raw_id));
    return item >= 1 && item <= num_items() ? std::optional(item) : std::nullopt;
  }
  std::string user_id(int64_t row) const override { return std::to_string(row); }
  std::optional<int64_t> find_user(std::string_view raw_id) const override {
    const int64_t row = std::stoll(std::string(raw_id));
    return row >= 0 && row < num_users() ? std::optional(row) : std::nullopt;
  }

 private:
  std::vector<User> users_;
};

}  // namespace seqfuse::data
