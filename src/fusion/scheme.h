// A scheme: which neighbouring operators of a layer (graph.h) run together, and how attention runs.
//
// Published code writes a scheme as 16 bits, the most significant first. Character 0 is 1 if attention may
// take the kernel written by hand; character i + 1 is operator i. Runs of equal characters are segments.
// Flipping characters 1 to 15 changes no segment, so two numbers mean the same. Here a scheme is the cuts
// themselves, and its number is the one whose character 1 is 0: 0 to 16383, or 32768 to 49151 with the
// kernel written by hand.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fusion/graph.h"

namespace seqfuse::fusion {

inline constexpr int64_t kMostNumber = 65535;
// The range that has each segmentation once, all with the kernel written by hand.
inline constexpr int64_t kFirstListed = 32768, kLastListed = 49151;

// Neighbouring operators, by their indices in kGraph, both ends included.
struct Segment {
  int first = 0, last = 0;

  bool fused() const { return last > first; }
  bool operator==(const Segment&) const = default;
};

enum class Mha : int8_t {
  by_operators,     // by the segments that QK to transpose are in
  written_by_hand,  // by the masked attention kernel, where QK to transpose are one segment
};

class Scheme {
 public:
  // No operator runs with another.
  Scheme() = default;
  // Segments in ascending order that do not overlap; operators in none of them run alone. Throws Error
  // if they are not.
  Scheme(std::span<const Segment> segments, Mha mha);
  // Throws UsageError unless 0 <= number <= kMostNumber.
  static Scheme from_number(int64_t number);
  // Throws UsageError unless text is 16 characters 0 or 1.
  static Scheme from_string(std::string_view text);

  Mha mha() const { return mha_; }
  // Whether operators op and op + 1 are in different segments; 0 <= op < kOps - 1.
  bool cut_after(int op) const { return (cuts_ >> op & 1) != 0; }
  // All segments in order, with those of a single operator.
  std::vector<Segment> segments() const;
  // Those of two operators or more.
  std::vector<Segment> fused_segments() const;
  bool has(Segment segment) const;

  // The number with character 1 = 0, and its 16 characters.
  int64_t number() const;
  std::string string() const;

  bool operator==(const Scheme&) const = default;

 private:
  static constexpr uint16_t kAllCuts = (1 << (kOps - 1)) - 1;

  uint16_t cuts_ = kAllCuts;  // bit i: cut between operators i and i + 1
  Mha mha_ = Mha::by_operators;
};

// The 16 characters of a number from 0 to kMostNumber.
std::string characters_of(int64_t number);

}  // namespace seqfuse::fusion
