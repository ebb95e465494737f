// Ranks as processes that Gloo connects.
#include <csignal>
#include <memory>

#include "penstock/transport/gloo_rendezvous.h"
#include "penstock/transport/process_endpoint.h"

namespace penstock {
namespace {

/// Gloo writes to a connection that its peer may have closed, and the system would end the process for that. With the
/// signal ignored the write fails, and the rank can say whom it has lost. A handler of the program's own stays.
void ignore_closed_connections() {
  struct sigaction now {};
  if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

bool gloo_available() { return true; }

std::unique_ptr<Transport> open_gloo(const TransportOptions& options) {
  require_deadlines(options);
  ignore_closed_connections();
  return open_process(GlooRendezvous::instance().open(options.start_deadline), options);
}

}  // namespace penstock
