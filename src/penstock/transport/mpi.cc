// Ranks as processes of an MPI job.
#include <memory>

#include "penstock/transport/mpi_network.h"
#include "penstock/transport/process_endpoint.h"

namespace penstock {

bool mpi_available() { return true; }

std::unique_ptr<Transport> open_mpi(const TransportOptions& options) {
  require_deadlines(options);
  return open_process(std::make_unique<MpiNetwork>(options.start_deadline), options);
}

}  // namespace penstock
