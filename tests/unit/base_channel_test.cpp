#include "base/channel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace seqfuse::base_channel_test {
namespace {

TEST(Channel, PassesAllValuesInOrder) {
  Channel<int> channel(3);
  std::jthread sender([&] {
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(channel.push(i));
    channel.close();
  });
  for (int i = 0; i < 1000; ++i) {
    const auto value = channel.pop();
    ASSERT_TRUE(value.has_value());
    EXPECT_EQ(*value, i);
  }
  EXPECT_FALSE(channel.pop().has_value());
}

TEST(Channel, SeveralReceiversGetEachValueOnce) {
  Channel<int> channel(2);
  std::vector<std::atomic<int>> received(500);
  std::vector<std::jthread> receivers;
  for (int i = 0; i < 3; ++i) {
    receivers.emplace_back([&] {
      while (const auto value = channel.pop()) ++received[*value];
    });
  }
  for (int i = 0; i < 500; ++i) channel.push(i);
  channel.close();
  receivers.clear();
  for (const auto& count : received) EXPECT_EQ(count, 1);
}

TEST(Channel, AFullOneIsWaitedForUntilItIsClosed) {
  Channel<std::unique_ptr<int>> channel(1);
  ASSERT_TRUE(channel.push(std::make_unique<int>(7)));
  std::atomic<bool> pushed = true;
  std::jthread sender([&] { pushed = channel.push(std::make_unique<int>(8)); });
  channel.close();
  sender.join();
  EXPECT_FALSE(pushed);
  const auto kept = channel.pop();  // what came before the end is not lost
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(**kept, 7);
  EXPECT_FALSE(channel.pop().has_value());
}

}  // namespace
}  // namespace seqfuse::base_channel_test
