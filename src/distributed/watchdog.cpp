#include "distributed/watchdog.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/log.h"

namespace seqfuse::distributed {
namespace {

using nlohmann::json;
using Seconds = std::chrono::duration<double>;

constexpr Seconds kBeatInterval(1), kCheckInterval(0.1);
// Covers the start, while every machine loads torch and opens the data.
constexpr double kStartSeconds = 600;

std::vector<uint8_t> text_bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

std::string key_of(const char* kind, int rank) {
  return fmt::format("{}/{}", kind, rank);
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

}  // namespace

Watchdog::Watchdog(c10::intrusive_ptr<c10d::Store> store, const Launch& launch,
                   double timeout_seconds)
    : launch_(launch),
      timeout_(timeout_seconds),
      store_(std::move(store)),
      allowed_seconds_(kStartSeconds) {
  write_beat();
  store_->set(key_of("process", launch_.rank), text_bytes(PeerProcess::self()));
  for (int rank = 0; rank < launch_.size; ++rank) {
    const std::vector<uint8_t> told = store_->get(key_of("process", rank));
    peers_.push_back({.process = PeerProcess(std::string(told.begin(), told.end())),
                      .heard = Clock::now(),
                      .progressed = Clock::now()});
    beat_keys_.push_back(key_of("beat", rank));
  }
  beats_thread_ = std::thread([this] { run(); });
  store_thread_ = std::thread([this] { watch_store(); });
}

Watchdog::~Watchdog() {
  stop();
}

void Watchdog::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (beats_thread_.joinable()) beats_thread_.join();
  if (store_thread_.joinable()) store_thread_.join();
}

void Watchdog::begin(const std::string& what, double allowed_seconds) {
  const std::lock_guard lock(mutex_);
  what_ = what;
  allowed_seconds_ = allowed_seconds;
  ++progress_;
}

Watchdog::Waiting::Waiting(Watchdog* watchdog, const std::string& what) : watchdog_(watchdog) {
  if (watchdog_ == nullptr) return;
  const std::lock_guard lock(watchdog_->mutex_);
  watchdog_->waits_for_ = what;
  watchdog_->waiting_since_ = Clock::now();
  ++watchdog_->progress_;
}

Watchdog::Waiting::~Waiting() {
  if (watchdog_ == nullptr) return;
  const std::lock_guard lock(watchdog_->mutex_);
  watchdog_->waits_for_.clear();
  ++watchdog_->progress_;
}

void Watchdog::find_culprit() {
  // The watching thread identifies the culprit and ends the process.
  std::this_thread::sleep_for(timeout_ + 3 * kBeatInterval);
}

void Watchdog::leave() {
  stop();
  store_->set(beat_keys_[launch_.rank], text_bytes(json{{"left", true}}.dump()));
}

void Watchdog::fail(const std::string& error) {
  stop();
  store_->set(beat_keys_[launch_.rank], text_bytes(json{{"failed", first_line(error)}}.dump()));
  // If this process serves the store, it must live until the others have read it.
  if (launch_.store_is_served || launch_.rank != 0) return;
  const auto others_live = [this] {
    return std::any_of(peers_.begin() + 1, peers_.end(),
                       [](const Peer& peer) { return !peer.process.has_ended(); });
  };
  for (auto waited = Seconds(0); waited < 3 * kBeatInterval && others_live();
       waited += kCheckInterval) {
    std::this_thread::sleep_for(kCheckInterval);
  }
}

void Watchdog::run() {
  Clock::time_point next_beat = Clock::now();
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    if (Clock::now() >= next_beat) {
      next_beat = Clock::now() + std::chrono::duration_cast<Clock::duration>(kBeatInterval);
      try {
        write_beat();
        read_beats();
      } catch (const std::exception& error) {
        check_peers();  // if rank 0 serves the store, its end may be the cause
        end_without_store(fmt::format("does not answer ({})", first_line(error.what())));
      }
    }
    check_peers();
    lock.lock();
    wake_.wait_for(lock, kCheckInterval, [this] { return stopping_; });
  }
}

// A call to the store may block if the process that serves it is stopped.
void Watchdog::watch_store() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kCheckInterval, [this] { return stopping_; })) {
    const Clock::time_point began = store_call_began_.load();
    if (began > Clock::now() || Clock::now() - began < timeout_) continue;
    lock.unlock();
    end_without_store(fmt::format("has not answered for {:.0f} s", timeout_.count()));
  }
}

void Watchdog::write_beat() {
  json beat;
  {
    const std::lock_guard lock(mutex_);
    beat = {{"count", ++beats_},
            {"progress", progress_},
            {"waits", !waits_for_.empty()},
            {"allowed", allowed_seconds_},
            {"what", waits_for_.empty() ? what_ : waits_for_ + ", " + what_}};
  }
  store_call_began_ = Clock::now();
  store_->set(key_of("beat", launch_.rank), text_bytes(beat.dump()));
  store_call_began_ = Clock::time_point::max();
}

void Watchdog::read_beats() {
  store_call_began_ = Clock::now();
  const auto beats = store_->multiGet(beat_keys_);
  store_call_began_ = Clock::time_point::max();
  for (size_t rank = 0; rank < beats.size(); ++rank) {
    if (static_cast<int>(rank) != launch_.rank) {
      judge(rank, std::string(beats[rank].begin(), beats[rank].end()));
    }
  }
}

void Watchdog::judge(size_t rank, const std::string& text) {
  Peer& peer = peers_[rank];
  if (text == peer.last_beat) return;
  peer.last_beat = text;
  peer.heard = Clock::now();
  const json beat = json::parse(text);
  if (beat.contains("failed")) {
    end(fmt::format("rank {} failed: {}", rank, beat["failed"].get<std::string>()));
  }
  if (beat.contains("left")) {
    peer.left = true;
    return;
  }
  peer.waits = beat["waits"];
  peer.allowed_seconds = beat["allowed"];
  peer.what = beat["what"];
  if (peer.progress != beat["progress"].get<int64_t>()) {
    peer.progress = beat["progress"];
    peer.progressed = Clock::now();
  }
}

void Watchdog::check_peers() {
  Clock::time_point waiting_since = Clock::time_point::max();
  {
    const std::lock_guard lock(mutex_);
    if (!waits_for_.empty()) waiting_since = waiting_since_;
  }
  const Clock::time_point now = Clock::now();
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    Peer& peer = peers_[rank];
    if (static_cast<int>(rank) == launch_.rank || peer.left) continue;
    if (peer.process.has_ended()) {
      // Its last message may not have been read yet.
      try {
        if (!peer.last_beat.empty()) {
          const std::vector<uint8_t> last = store_->get(beat_keys_[rank]);
          judge(rank, std::string(last.begin(), last.end()));
        }
      } catch (const std::exception&) {
        // The store ended with it.
      }
      if (peer.left) continue;
      end(fmt::format("rank {} (process {}) has died", rank, peer.process.pid()));
    }
    if (now - peer.heard > timeout_) {
      end(fmt::format("rank {} has sent no heartbeat for {:.0f} s{}", rank, timeout_.count(),
                      peer.what.empty() ? "" : "; it was last in " + peer.what),
          &peer.process);
    }
    const Seconds still = now - peer.progressed;
    const Seconds allowed(peer.allowed_seconds);
    if (!peer.waits && waiting_since < now && still > allowed && now - waiting_since > allowed) {
      end(fmt::format("rank {} hangs: it has been in {} for {:.0f} s", rank, peer.what,
                      still.count()),
          &peer.process);
    }
  }
}

std::string Watchdog::here() const {
  const std::lock_guard lock(mutex_);
  return waits_for_.empty()
             ? fmt::format("rank {} was in {}", launch_.rank, what_)
             : fmt::format("rank {} waited in {}, {}", launch_.rank, waits_for_, what_);
}

void Watchdog::end_without_store(const std::string& how) {
  const bool served = launch_.store_is_served;
  end(fmt::format("{} at {}:{} {}", served ? "torchrun's store" : "rank 0, which serves the store",
                  launch_.address, launch_.port, how),
      served || launch_.rank == 0 ? nullptr : &peers_[0].process);
}

void Watchdog::end(const std::string& what_happened, const PeerProcess* hanging) {
  log::warning("train", "{}; {}\n  the job ends; start it again with --resume", what_happened,
               here());
  std::fflush(nullptr);
  if (hanging != nullptr) hanging->kill();
  _exit(1);
}

}  // namespace seqfuse::distributed
