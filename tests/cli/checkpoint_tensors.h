// Reads the tensors of a checkpoint without torch, which these tests do not link.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"

namespace seqfuse {

using CheckpointTensors = std::map<std::string, std::vector<float>>;

// The tensors of all its safetensors files by name; all are float32.
inline CheckpointTensors checkpoint_tensors(const std::string& run, int64_t step) {
  CheckpointTensors tensors;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           fmt::format("{}/checkpoints/step_{}", run, step))) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string bytes = read_file(entry.path());
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
    const auto header = nlohmann::json::parse(bytes.substr(sizeof(header_bytes), header_bytes));
    for (const auto& [name, tensor] : header.items()) {
      if (name == "__metadata__") continue;
      EXPECT_EQ(tensor["dtype"], "F32") << name;
      const uint64_t begin = tensor["data_offsets"][0], end = tensor["data_offsets"][1];
      std::vector<float>& values = tensors[name];
      EXPECT_TRUE(values.empty()) << "two tensors are called " << name;
      values.resize((end - begin) / sizeof(float));
      std::memcpy(values.data(), bytes.data() + sizeof(header_bytes) + header_bytes + begin,
                  end - begin);
    }
  }
  return tensors;
}

// Infinite if the sizes differ.
inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - b[i]));
  }
  return largest;
}

// To an absolute error of 1e-5.
inline void expect_same_tensors(const CheckpointTensors& found, const CheckpointTensors& expected) {
  EXPECT_FALSE(expected.empty());
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [name, values] : expected) {
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_LT(largest_difference(found.at(name), values), 1e-5) << name;
  }
}

}  // namespace seqfuse
