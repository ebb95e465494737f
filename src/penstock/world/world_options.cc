#include "penstock/world/world_options.h"

#include "penstock/base/error.h"
#include "penstock/transport/joining/launch_environment.h"

namespace penstock {
namespace {

[[noreturn]] void refuse_build_without_mpi(const joining::LaunchedAs& launched, const BuiltTransports& built) {
  throw ConfigError(say(
      "rank ", launched.rank, " of ", launched.size, " by ", launched.by, ", but this Penstock is built without MPI",
      built.gloo ? ": use torchrun or penstock launch, or build with MPI " : " and without Gloo: build with MPI ",
      "(-DPENSTOCK_MPI=ON)"));
}

}  // namespace

joining::AskedTransport asked_transport(TransportKind wanted) {
  if (wanted == TransportKind::gloo || wanted == TransportKind::nccl) return joining::AskedTransport::gloo;
  return wanted == TransportKind::mpi ? joining::AskedTransport::mpi : joining::AskedTransport::any;
}

TransportKind choose_transport(TransportKind wanted, const joining::LaunchedAs& launched,
                               const BuiltTransports& built) {
  using enum TransportKind;
  const bool several = launched.size > 1;
  const bool wants_gloo = wanted == gloo || wanted == nccl;
  const std::string which = say("this is process ", launched.rank, " of ", launched.size, " started by ", launched.by);
  switch (launched.kind) {
    case joining::LaunchedAs::Kind::alone:
      if (wants_gloo && launched.has_launcher) return threads;
      require<ConfigError>(!wants_gloo, "the transport ", wanted == gloo ? "gloo" : "nccl",
                           " joins processes, and this is the only one: start them with "
                           "torchrun (torchrun --no-python --nproc-per-node 2 ...), or use threads");
      return wanted == mpi ? mpi : threads;
    case joining::LaunchedAs::Kind::mpi:
      require<ConfigError>(!several || wanted != threads, which, ", but the transport is threads: ", launched.size,
                           " whole jobs would run side by side; use the mpi transport or start one process");
      if (!several && (wants_gloo || (wanted == automatic && !built.mpi))) return threads;
      if (several && !built.mpi && !wants_gloo) refuse_build_without_mpi(launched, built);
      return wanted == automatic ? mpi : wanted;
    case joining::LaunchedAs::Kind::torchrun:
      require<ConfigError>(wanted != threads, which, ", but the transport is threads: ", launched.size,
                           " whole jobs would run side by side; use the gloo transport or start one process");
      require<ConfigError>(wanted != mpi, which,
                           ", and MPI joins only processes that mpirun or srun has started: use the "
                           "gloo transport, or start them with mpirun");
      require<ConfigError>(built.gloo, which,
                           ", and nothing joins them, because this build or its LibTorch has no Gloo: "
                           "start them with mpirun instead");
      return wanted == nccl ? nccl : gloo;
  }
  throw InternalError("a launcher of an unknown kind");
}

}  // namespace penstock
