// Hash tables on every device: rows on the device, divided, or cached.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "embeddings/dynamic/hash_table.h"
#include "tests/missing_gpu.h"

namespace seqfuse::embeddings::hash_tables {

namespace table_op = ops::hash_table;
using Ids = std::vector<int64_t>;

template <class T>
std::vector<T> host(const at::Tensor& tensor) {
  const at::Tensor here = tensor.cpu().contiguous();
  const T* data = here.const_data_ptr<T>();
  return {data, data + here.numel()};
}

class HashTableFixture : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (device().is_cuda()) {
      if (const char* why = test::missing_gpu()) GTEST_SKIP() << why;
    }
  }

  // "cuda_cached": rows in the host's memory behind a cache; "_split": some rows there.
  bool is(const char* kind) const {
    return std::string(GetParam()).find(kind) != std::string::npos;
  }
  at::Device device() const { return at::Device(is("cuda") ? "cuda" : "cpu"); }
  at::Tensor to_device(const Ids& ids) const {
    return torch::tensor(ids, torch::kLong).to(device());
  }

  HashTableOptions options(int64_t capacity, int64_t dim = 2) const {
    HashTableOptions options;
    options.name = "item";
    options.capacity = capacity;
    options.dim = dim;
    options.device = device();
    if (is("split")) options.device_rows = std::min<int64_t>(70, capacity / 2);
    if (is("cached")) options.device_rows = std::max<int64_t>(40, capacity / 10);
    options.cached = is("cached");
    return options;
  }

  HashTable::Inserted insert(HashTable& table, const Ids& ids) const {
    return table.insert({.ids = to_device(ids)});
  }

  // Sets the first weight of each row to a number made from its id.
  void mark(HashTable& table, const Ids& ids, const at::Tensor& slots) const {
    std::vector<float> marks;
    for (const int64_t id : ids) marks.push_back(mark_of(id));
    at::Tensor rows = table.read_rows(slots);
    rows.select(1, 0).copy_(torch::tensor(marks, torch::kFloat));
    table.write_rows(slots, rows);
  }
  static float mark_of(int64_t id) {
    return static_cast<float>(table_op::mix(static_cast<uint64_t>(id)) >> 40);
  }

  // Every id of the table has its own mark, and there are as many as the table says.
  void expect_marks(const HashTable& table) const {
    const HashTableContents contents = table.contents();
    const auto ids = host<int64_t>(contents.ids);
    const auto marks = host<float>(contents.rows.select(1, 0));
    for (size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(marks[i], mark_of(ids[i])) << "id " << ids[i];
    EXPECT_EQ(std::set<int64_t>(ids.begin(), ids.end()).size(), ids.size());
    EXPECT_EQ(table.size(), static_cast<int64_t>(ids.size()));
  }
};

// Different ids; every eighth number, so that low bits are equal.
inline Ids multiples(int64_t count, int64_t factor = 8) {
  Ids ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(i * factor);
  return ids;
}

inline Ids random_ids(Random& random, int64_t count, uint64_t range) {
  std::set<int64_t> ids;
  while (static_cast<int64_t>(ids.size()) < count) {
    ids.insert(static_cast<int64_t>(random.below(range)) - 5);
  }
  return {ids.begin(), ids.end()};
}

inline auto on_cpu() {
  return testing::Values("cpu", "cpu_split", "cpu_cached");
}
inline auto on_gpu() {
  return testing::Values("cuda", "cuda_split", "cuda_cached");
}

}  // namespace seqfuse::embeddings::hash_tables
