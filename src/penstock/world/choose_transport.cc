#include "penstock/world/choose_transport.h"

#include "penstock/base/error.h"

namespace penstock {

TransportKind choose_transport(TransportKind wanted, const LaunchedAs& launched, const BuiltTransports& built) {
  using enum TransportKind;
  const bool several = launched.size > 1;
  const std::string which = say("this is process ", launched.rank, " of ", launched.size, " started by ", launched.by);
  switch (launched.kind) {
    case LaunchedAs::Kind::alone:
      require<ConfigError>(wanted != gloo && wanted != nccl, "the transport ", wanted == gloo ? "gloo" : "nccl",
                           " joins processes, and this is the only one: start them with "
                           "torchrun (torchrun --no-python --nproc-per-node 2 ...), or use threads");
      return wanted == mpi ? mpi : threads;
    case LaunchedAs::Kind::mpi:
      require<ConfigError>(!several || wanted != threads, which, ", but the transport is threads: ", launched.size,
                           " whole jobs would run side by side; use the mpi transport or start one process");
      // Without MPI the error of open_mpi() says what is missing.
      if (wanted == automatic) return built.mpi || !built.gloo ? mpi : gloo;
      return wanted;
    case LaunchedAs::Kind::torchrun:
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
