// Replaces gloo.cc in a build without Gloo.
#include "penstock/base/error.h"
#include "penstock/transport/joined_processes.h"
#include "penstock/transport/transport.h"

namespace penstock {
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

}  // namespace penstock
