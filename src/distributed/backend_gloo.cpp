#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#ifdef SEQFUSE_HAS_GLOO
#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif

#include "base/error.h"
#include "distributed/backends.h"
#include "distributed/process_group.h"

namespace seqfuse::distributed {

c10::intrusive_ptr<c10d::Store> open_store(const Launch& launch, bool serve) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(launch.port);
  options.isServer = serve && !launch.store_is_served;
  options.waitWorkers = false;
  return c10::make_intrusive<c10d::PrefixStore>(
      fmt::format("seqfuse/{}", launch.attempt),
      c10::make_intrusive<c10d::TCPStore>(launch.address, options));
}

#ifdef SEQFUSE_HAS_GLOO

std::string why_no_processes() {
  return "";
}

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                            const Launch& launch) {
  using c10d::ProcessGroupGloo;
  const auto options = ProcessGroupGloo::Options::create();
  // By default an exchange fails after 30 minutes. A process that is done early may wait for longer
  // than that, and the watchdog finds those that died or hang within seconds.
  options->timeout = std::chrono::hours(24 * 365);
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != '\0') {
    options->devices.push_back(ProcessGroupGloo::createDeviceForInterface(interface));
  } else if (launch.local_size == launch.size) {
    // On one machine the host name need not resolve.
    options->devices.push_back(ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  } else {
    options->devices.push_back(ProcessGroupGloo::createDefaultDevice());
  }
  return c10::make_intrusive<ProcessGroupGloo>(
      c10::make_intrusive<c10d::PrefixStore>("gloo", store), launch.rank, launch.size, options);
}

#else

std::string why_no_processes() {
  return "this build supports only one process, because Gloo's headers were missing: run apt-get "
         "install libgloo-dev (or `make setup`), then `make build`; or start one process, without "
         "torchrun";
}

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>&, const Launch&) {
  throw UsageError(why_no_processes());
}

#endif

}  // namespace seqfuse::distributed
