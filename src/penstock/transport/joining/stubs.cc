// Replaces the files of the libraries that a build does without: PENSTOCK_WITHOUT_MPI, _GLOO and _NCCL name them.
#include "penstock/base/error.h"
#include "penstock/transport/joined_processes.h"
#include "penstock/transport/transport.h"

namespace penstock {

#ifdef PENSTOCK_WITHOUT_MPI
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
#endif

#ifdef PENSTOCK_WITHOUT_GLOO
namespace {

[[noreturn]] void refuse_gloo() {
  throw ConfigError(
      "built without Gloo (PENSTOCK_GLOO=OFF, or this LibTorch has none): take a LibTorch with distributed support and "
      "configure again with -DPENSTOCK_GLOO=ON, or use --transport mpi or threads");
}

}  // namespace

bool gloo_available() { return false; }

std::unique_ptr<Transport> open_gloo(const TransportOptions&) { refuse_gloo(); }
std::unique_ptr<Transport> open_nccl(const TransportOptions&) { refuse_gloo(); }
std::shared_ptr<JoinedProcesses> store_processes(const c10::intrusive_ptr<c10d::Store>&, ProcessRank,
                                                 const std::optional<DeviceGroups>&) {
  refuse_gloo();
}
#endif

#ifdef PENSTOCK_WITHOUT_NCCL
bool nccl_available() { return false; }

DeviceGroups nccl_groups() {
  throw ConfigError(
      "built without NCCL (PENSTOCK_NCCL=OFF, or a LibTorch for the CPU): take a LibTorch for CUDA and configure again "
      "with -DPENSTOCK_NCCL=ON, or use --transport gloo, which carries tensors of GPUs through the memory of the host");
}
#endif

}  // namespace penstock
