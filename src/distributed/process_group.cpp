#include "distributed/process_group.h"

#include <c10/util/Logging.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <numeric>

#include "base/error.h"
#include "distributed/backends.h"
#include "distributed/watchdog.h"

namespace seqfuse::distributed {

struct ProcessGroup::State {
  State(const Launch& launch, double timeout_seconds)
      : watchdog(open_store(launch, false), launch, timeout_seconds) {}

  Watchdog watchdog;
  c10::intrusive_ptr<c10d::Backend> host;    // for tensors on the CPU
  c10::intrusive_ptr<c10d::Backend> device;  // for those on a GPU; null without a GPU

  c10d::Backend& of(const at::Tensor& tensor) const { return tensor.is_cuda() ? *device : *host; }

  // Starts an exchange and returns a function that waits for it.
  template <class Start>
  Finish exchange(const std::string& what, Start&& start) {
    auto work = guarded(what, start);
    return [this, what, work] { guarded(what, [&] { return work->wait(); }); };
  }

  template <class Call>
  auto guarded(const std::string& what, Call&& call) -> decltype(call()) {
    const Watchdog::Waiting waiting(&watchdog, what);
    try {
      return call();
    } catch (const std::exception& error) {
      watchdog.find_culprit();
      throw_error("{}: {}", what, error.what());
    }
  }
};

namespace {

// By default, sending to a dead process ends this one silently (SIGPIPE). Ignored, the call fails
// instead and the watchdog can name the dead process. Keeps a handler that is already set.
void outlive_broken_connections() {
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL)
    std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

ProcessGroup::ProcessGroup() = default;

ProcessGroup& ProcessGroup::single() {
  static ProcessGroup group;
  return group;
}

ProcessGroup::ProcessGroup(const Launch& launch, at::Device device, double rank_timeout_seconds)
    : rank_(launch.rank), size_(launch.size) {
  if (!several()) return;
  if (const std::string why = why_no_processes(); !why.empty()) throw UsageError(why);
  // c10d would print a stack trace for each connection to a dead process, which the watchdog
  // reports anyway.
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = c10::GLOG_ERROR;
  outlive_broken_connections();
  const c10::intrusive_ptr<c10d::Store> store = open_store(launch, launch.rank == 0);
  try {
    state_ = std::make_unique<State>(launch, rank_timeout_seconds);
    const Watchdog::Waiting waiting(&state_->watchdog, "start of the processes");
    state_->host = make_gloo(store, launch);
    if (device.is_cuda()) state_->device = make_nccl(store, launch);
  } catch (const c10::Error& error) {
    throw_error("rank {} did not find the {} other processes of the job at {}:{}: {}", launch.rank,
                launch.size - 1, launch.address, launch.port, error.what_without_backtrace());
  }
}

ProcessGroup::~ProcessGroup() = default;

const char* ProcessGroup::backend() const {
  return state_ && state_->device ? "nccl" : "gloo";
}

void ProcessGroup::begin(const std::string& what, double allowed_seconds) {
  if (state_) state_->watchdog.begin(what, allowed_seconds);
}

ProcessGroup::Finish ProcessGroup::all_reduce(const at::Tensor& tensor, const std::string& what) {
  if (!state_) return [] {};
  return state_->exchange(what, [&] {
    std::vector<at::Tensor> tensors = {tensor};
    return state_->of(tensor).allreduce(tensors);
  });
}

void ProcessGroup::broadcast(const std::vector<at::Tensor>& tensors, const std::string& what) {
  if (!state_) return;
  const torch::NoGradGuard no_grad;
  for (const at::Tensor& tensor : tensors) {
    std::vector<at::Tensor> one = {tensor.detach()};
    state_->exchange(what, [&] { return state_->of(tensor).broadcast(one); })();
  }
}

std::string ProcessGroup::broadcast(const std::string& text, const std::string& what) {
  if (!state_) return text;
  const at::Tensor length = torch::tensor(static_cast<int64_t>(text.size()), torch::kLong);
  broadcast(std::vector{length}, what);
  const at::Tensor bytes = torch::zeros({length.item<int64_t>()}, torch::kByte);
  if (is_first()) std::copy(text.begin(), text.end(), bytes.mutable_data_ptr<uint8_t>());
  if (bytes.numel() > 0) broadcast(std::vector{bytes}, what);
  const uint8_t* data = bytes.const_data_ptr<uint8_t>();
  return {data, data + bytes.numel()};
}

at::Tensor ProcessGroup::all_to_all(const at::Tensor& rows, const std::vector<int64_t>& send_counts,
                                    const std::vector<int64_t>& receive_counts,
                                    const std::string& what) {
  if (!state_) return rows;
  std::vector<int64_t> shape = rows.sizes().vec();
  shape[0] = std::accumulate(receive_counts.begin(), receive_counts.end(), int64_t{0});
  at::Tensor received = torch::empty(shape, rows.options());
  at::Tensor sent = rows.contiguous();
  std::vector<int64_t> send = send_counts, receive = receive_counts;
  state_->exchange(what,
                   [&] { return state_->of(rows).alltoall_base(received, sent, receive, send); })();
  return received;
}

void ProcessGroup::sum(std::span<double> values, const std::string& what) {
  if (!state_) return;
  all_reduce(torch::from_blob(values.data(), {std::ssize(values)}, torch::kDouble), what)();
}

at::Tensor ProcessGroup::gather(const at::Tensor& rows, const std::string& what) {
  if (!state_) return rows;
  std::vector<double> counts(size_);
  counts[rank_] = static_cast<double>(rows.size(0));
  sum(counts, what);
  const auto most = static_cast<int64_t>(*std::max_element(counts.begin(), counts.end()));
  std::vector<int64_t> shape = rows.sizes().vec();
  shape[0] = most;
  at::Tensor padded = torch::zeros(shape, rows.options());
  padded.slice(0, 0, rows.size(0)).copy_(rows);
  shape.insert(shape.begin(), size_);
  std::vector<at::Tensor> sent = {padded}, parts;
  if (most > 0) {
    std::vector<std::vector<at::Tensor>> received(1);
    for (int rank = 0; rank < size_; ++rank) received[0].push_back(torch::empty_like(padded));
    state_->exchange(what, [&] { return state_->of(rows).allgather(received, sent); })();
    parts = std::move(received[0]);
  } else {
    parts.assign(size_, padded);
  }
  for (int rank = 0; rank < size_; ++rank) {
    parts[rank] = parts[rank].slice(0, 0, static_cast<int64_t>(counts[rank]));
  }
  return torch::cat(parts);
}

void ProcessGroup::barrier(const std::string& what) {
  double nothing = 0;
  sum({&nothing, 1}, what);
}

void ProcessGroup::leave() {
  if (!state_) return;
  barrier("end of all processes");
  state_->watchdog.leave();
}

void ProcessGroup::fail(const std::string& error) {
  if (state_) state_->watchdog.fail(error);
}

}  // namespace seqfuse::distributed
