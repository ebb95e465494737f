// Replaces mpi.cc in a build without MPI.
#include "penstock/base/error.h"
#include "penstock/transport/joined_processes.h"
#include "penstock/transport/transport.h"

namespace penstock {
namespace {

[[noreturn]] void refuse_mpi() {
  throw ConfigError(
      "built without MPI (PENSTOCK_MPI=OFF, or no MPI was found): install an MPI (e.g. libopenmpi-dev) and configure "
      "again with -DPENSTOCK_MPI=ON, or use --transport gloo or threads");
}

}  // namespace

bool mpi_available() { return false; }

std::unique_ptr<Transport> open_mpi(const TransportOptions&) { refuse_mpi(); }
std::shared_ptr<JoinedProcesses> mpi_processes(int) { refuse_mpi(); }

}  // namespace penstock
