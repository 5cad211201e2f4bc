// The rows of a dynamic table between the processes that own them and those that need them.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "distributed/process_group.h"
#include "embeddings/dynamic/dynamic_rows.h"

namespace seqfuse::embeddings {

// Which process owns an id.
struct IdDealing {
  enum class Kind : int64_t {
    hashed,  // by a hash of the id: ids with a pattern spread as evenly as others
    modulo,  // id modulo the number of processes
    continuous  // ids 0..range - 1 in as many blocks as processes; lower ids in the first, higher in the last
  };
  Kind kind = Kind::hashed;
  int64_t range = 1;

  // int64 [n] of ids, any int64.
  at::Tensor owners(const at::Tensor& ids, int64_t processes) const;
};

// Rows that a process has room for, so that a hash, which deals ids unevenly, fills none before the
// table has `capacity` rows in all.
int64_t capacity_of_process(int64_t capacity, int64_t processes);

// With several processes, all must make the same calls in the same order.
class DynamicExchange {
 public:
  DynamicExchange(std::string table, IdDealing dealing, distributed::ProcessGroup& group);

  // The rows of a batch: which this process needs, and which others need of it.
  struct Request {
    at::Tensor ids;                      // int64 [u] needed here, each once, ascending
    at::Tensor by_owner;                 // int64 [u]: indices into ids, grouped by owner
    std::vector<int64_t> counts, asked;  // rows needed of, and by, each process
    at::Tensor asked_ids, asked_times;   // int64 [m]: needed of this process, and how often
  };
  // ids: int64 of any shape, repeats allowed. Waits for a GPU.
  Request ask(const at::Tensor& ids) const;
  // rows [m, D] of asked_ids become rows [u, D] of ids.
  at::Tensor answer(const Request& request, const at::Tensor& rows) const;
  // Gradients [u, D] of ids become gradients [m, D] of asked_ids.
  at::Tensor give_back(const Request& request, const at::Tensor& gradients) const;

  // Concatenates contents (on the CPU) in the first process, in the order of the processes; empty in
  // the others. shards: int64 [processes, 2]: the rows of each, and its capacity.
  HashTableContents gather(const HashTableContents& here, at::Tensor& shards) const;
  // The reverse, to the owners. given, shards: of the first process, ignored in the others. Slots are
  // kept if the shards fit these processes. Missing scores are 0.
  HashTableContents scatter(const HashTableContents& given, const at::Tensor& shards) const;
  // Rows of each process, int64 [processes].
  at::Tensor rows_of_processes(const at::Tensor& ids) const;

 private:
  std::string what(const char* exchanged) const;
  std::vector<int64_t> exchange_counts(const std::vector<int64_t>& counts) const;
  at::Tensor gather_rows(const at::Tensor& here, const std::vector<int64_t>& sizes) const;

  const std::string table_;
  const IdDealing dealing_;
  distributed::ProcessGroup& group_;
};

}  // namespace seqfuse::embeddings
