// Who started this process, and as one of how many. Torch-free.
#pragma once

#include <functional>
#include <string>

namespace penstock {

struct LaunchedAs {
  enum class Kind {
    alone,    // nobody started several: threads
    mpi,      // mpirun, mpiexec or srun with PMI
    torchrun  // torchrun-style RANK and WORLD_SIZE, more than one
  };
  Kind kind = Kind::alone;
  int rank = 0;
  int size = 1;
  std::string by = "hand";  // for messages, e.g. "mpirun (OMPI_COMM_WORLD_SIZE = 4)"
};

/// Looks a variable up; null when it is not set.
using Environment = std::function<const char*(const char*)>;

/// Reads the launchers' variables; MPI goes before torchrun.
/// Throws ConfigError when a variable is no number or the rank lies outside the world, when MPI and torchrun
/// name different worlds, and for several srun tasks without PMI: each would run the whole job by itself.
LaunchedAs launched_as(const Environment& environment);

/// The same, of this process.
LaunchedAs launched_as();

/// The variable that `penstock launch` sets to 1 for every rank: its output has a log of its own.
inline constexpr const char* log_every_rank_variable = "PENSTOCK_LOG_EVERY_RANK";

/// Whether it is set to 1.
bool logs_every_rank(const Environment& environment);

/// The same, of this process.
bool logs_every_rank();

}  // namespace penstock
