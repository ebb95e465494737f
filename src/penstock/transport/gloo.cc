// Ranks as processes that Gloo connects.
#include <memory>

#include "penstock/transport/gloo_rendezvous.h"
#include "penstock/transport/process_endpoint.h"

namespace penstock {

bool gloo_available() { return true; }

std::unique_ptr<Transport> open_gloo(const TransportOptions& options) {
  require_deadlines(options);
  return open_process(GlooRendezvous::instance().open(options.start_deadline), options);
}

}  // namespace penstock
