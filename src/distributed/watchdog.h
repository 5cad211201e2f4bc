// Notices that another process of the job has died, hangs or failed, and then ends this one too,
// saying which and what was waited for. Otherwise a collective waits for it for ever.
#pragma once

#include <torch/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "distributed/launch.h"
#include "distributed/peer_process.h"

namespace seqfuse::distributed {

// Each process writes a heartbeat into the store every second and reads those of the others.
// A process is given up
//   - when it says that it failed, with its error;
//   - when its process has ended (seen at once on the same machine);
//   - when nothing has been heard of it for the timeout: stopped, or its machine is gone;
//   - when this one waits for it and it has neither waited nor begun anything new for as long as it
//     said it would need: a hang of its own.
// Then this process prints a line, kills the other if it is on this machine (a stopped process
// would keep torchrun waiting for half a minute), and exits with code 1 without unwinding: a thread
// may be inside a collective that never returns.
class Watchdog {
 public:
  // store: a connection that nothing else uses, since a call may block in it. Waits for the others.
  Watchdog(c10::intrusive_ptr<c10d::Store> store, const Launch& launch, double timeout_seconds);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // What this process does from now on, and the seconds after which others may give it up.
  void begin(const std::string& what, double allowed_seconds);

  // While it lives, this process waits for others.
  class Waiting {
   public:
    Waiting(Watchdog* watchdog, const std::string& what);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Watchdog* watchdog_;
  };

  // A collective failed, most likely because another process has died: waits until it is known
  // which, then ends this process; returns if nothing is found.
  void find_culprit();

  // This process ends as it should / with an error. The others are told; watching stops.
  void leave();
  void fail(const std::string& error);

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer {
    PeerProcess process;
    std::string last_beat;
    Clock::time_point heard;       // last_beat changed
    int64_t progress = -1;         // what it had begun so far
    Clock::time_point progressed;  // progress changed
    bool waits = false, left = false;
    double allowed_seconds = 0;
    std::string what;
  };
  void run();
  void watch_store();
  void write_beat();
  void read_beats();
  void check_peers();
  void judge(size_t rank, const std::string& beat);
  void stop();
  [[noreturn]] void end(const std::string& what_happened, const PeerProcess* hanging = nullptr);
  [[noreturn]] void end_without_store(const std::string& how);
  std::string here() const;  // "rank 0 waited in all-reduce of gradients, step 120"

  const Launch launch_;
  const std::chrono::duration<double> timeout_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::vector<Peer> peers_;  // by rank; of the thread that reads beats
  std::vector<std::string> beat_keys_;
  int64_t beats_ = 0;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  std::string what_ = "start", waits_for_;
  int64_t progress_ = 0;
  double allowed_seconds_;
  Clock::time_point waiting_since_;
  bool stopping_ = false;

  std::atomic<Clock::time_point> store_call_began_{Clock::time_point::max()};
  std::thread beats_thread_, store_thread_;
};

}  // namespace seqfuse::distributed
