// Ranks as processes that Gloo connects.
#include <csignal>
#include <memory>
#include <utility>

#include "penstock/transport/gloo_rendezvous.h"
#include "penstock/transport/joined_processes.h"
#include "penstock/transport/process_endpoint.h"

namespace penstock {
namespace {

/// Gloo writes to a connection that its peer may have closed, and the system would end the process for that. With the
/// signal ignored the write fails, and the rank can say whom it has lost. A handler of the program's own stays.
void ignore_closed_connections() {
  struct sigaction now {};
  if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
}

std::unique_ptr<Transport> open_at(GlooRendezvous& rendezvous, const TransportOptions& options) {
  require_deadlines(options);
  ignore_closed_connections();
  return open_process(rendezvous.open(options.start_deadline), options);
}

class StoreProcesses final : public JoinedProcesses {
 public:
  explicit StoreProcesses(GlooRendezvous rendezvous) : rendezvous_(std::move(rendezvous)) {}

  std::string transport() const override { return "gloo"; }
  int size() const override { return rendezvous_.size(); }
  std::unique_ptr<Transport> open(const TransportOptions& options) override { return open_at(rendezvous_, options); }

 private:
  GlooRendezvous rendezvous_;
};

}  // namespace

bool gloo_available() { return true; }

std::unique_ptr<Transport> open_gloo(const TransportOptions& options) {
  return open_at(GlooRendezvous::instance(), options);
}

std::shared_ptr<JoinedProcesses> store_processes(const c10::intrusive_ptr<c10d::Store>& store, ProcessRank own) {
  return std::make_shared<StoreProcesses>(GlooRendezvous(store, own));
}

}  // namespace penstock
