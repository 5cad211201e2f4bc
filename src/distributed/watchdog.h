// Detects that another process of the job died, hangs or failed, reports it and ends this one too.
// Otherwise a collective would wait forever.
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
// A process counts as lost
//   - when it reports an error;
//   - when it has ended (noticed at once on the same machine);
//   - when it sends no heartbeat for the timeout: it is stopped, or its machine is gone;
//   - when this process waits for it, and it has neither waited nor begun anything new within the
//     time that it announced: it hangs.
// Then this process prints a line, kills the other one if it is on this machine (a stopped process
// would keep torchrun waiting for half a minute), and exits with code 1 without unwinding: a thread
// may be inside a collective that never returns.
class Watchdog {
 public:
  // store: a separate connection, because a call may block in it. Waits for the others.
  Watchdog(c10::intrusive_ptr<c10d::Store> store, const Launch& launch, double timeout_seconds);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Announces what this process does next, and after how many seconds it counts as hanging.
  void begin(const std::string& what, double allowed_seconds);

  // During its lifetime, this process is waiting for others.
  class Waiting {
   public:
    Waiting(Watchdog* watchdog, const std::string& what);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Watchdog* watchdog_;
  };

  // Call when a collective failed, most likely because another process died: waits until that
  // process is identified, then ends this one. Returns if none is found.
  void find_culprit();

  // This process ends normally / with an error: tells the others and stops watching.
  void leave();
  void fail(const std::string& error);

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer {
    PeerProcess process;
    std::string last_beat;
    Clock::time_point heard;       // when last_beat changed
    int64_t progress = -1;         // number of things it has begun
    Clock::time_point progressed;  // when progress changed
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
  std::vector<Peer> peers_;  // by rank; used only by the thread that reads heartbeats
  std::vector<std::string> beat_keys_;
  int64_t beats_ = 0;

  mutable std::mutex mutex_;  // guards the members below
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
