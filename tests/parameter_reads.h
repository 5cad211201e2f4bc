// Finds which parameters of which configuration class a source text reads.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace seqfuse::test {

// A scan of tokens, not a compiler: it knows the class of `x` in `x.parameter` if x is declared with the
// class's name, or with auto from a member of that class. It misses reads through generic lambdas.
class ParameterReads {
 public:
  // Parameters by class.
  using Classes = std::map<std::string, std::set<std::string>, std::less<>>;
  using Read = std::pair<std::string, std::string>;  // class, parameter

  explicit ParameterReads(const Classes& classes) : classes_(classes) {}

  // Remembers the members of a header's structs that are instances of a class, under their names:
  // `config.trainer` is a TrainerArgs wherever it is read.
  void add_header(std::string_view text);
  // The reads of a source file. own_header: what it declares first, for its class's members.
  std::set<Read> reads_of(std::string_view text, std::string_view own_header = "") const;

 private:
  using Owners = std::map<std::string, std::set<std::string>, std::less<>>;  // names to classes

  const Classes& classes_;
  Owners members_;
};

}  // namespace seqfuse::test
