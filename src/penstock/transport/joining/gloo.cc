// Ranks as processes that Gloo connects.
#include <csignal>
#include <memory>
#include <utility>

#include "penstock/transport/devices/device_channels.h"
#include "penstock/transport/joined_processes.h"
#include "penstock/transport/joining/gloo_rendezvous.h"
#include "penstock/transport/processes/buffer_network.h"

namespace penstock {
namespace {

/// Gloo writes to a connection that its peer may have closed, and the system would end the process for that. With the
/// signal ignored the write fails, and the rank can say whom it has lost. A handler of the program's own stays.
void ignore_closed_connections() {
  struct sigaction now {};
  if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
}

std::unique_ptr<Transport> open_at(GlooRendezvous& rendezvous, const TransportOptions& options,
                                   const std::optional<DeviceGroups>& groups) {
  require_deadlines(options);
  ignore_closed_connections();
  GlooWorld world = rendezvous.open(options.start_deadline);
  std::unique_ptr<DeviceChannels> device_channels;
  if (groups) device_channels = open_device_channels(world.network->rank(), *groups, world.store);
  return open_process(std::move(world.network), options, std::move(device_channels));
}

class StoreProcesses final : public JoinedProcesses {
 public:
  StoreProcesses(GlooRendezvous rendezvous, std::optional<DeviceGroups> groups)
      : rendezvous_(std::move(rendezvous)), groups_(std::move(groups)) {}

  std::string transport() const override { return groups_ ? groups_->name : "gloo"; }
  int size() const override { return rendezvous_.size(); }
  std::unique_ptr<Transport> open(const TransportOptions& options) override {
    return open_at(rendezvous_, options, groups_);
  }

 private:
  GlooRendezvous rendezvous_;
  const std::optional<DeviceGroups> groups_;
};

}  // namespace

bool gloo_available() { return true; }

std::unique_ptr<Transport> open_gloo(const TransportOptions& options) {
  return open_at(GlooRendezvous::instance(), options, {});
}

std::unique_ptr<Transport> open_nccl(const TransportOptions& options) {
  return open_at(GlooRendezvous::instance(), options, nccl_groups());
}

std::shared_ptr<JoinedProcesses> store_processes(const c10::intrusive_ptr<c10d::Store>& store, ProcessRank own,
                                                 const std::optional<DeviceGroups>& groups) {
  return std::make_shared<StoreProcesses>(GlooRendezvous(store, own), groups);
}

}  // namespace penstock
