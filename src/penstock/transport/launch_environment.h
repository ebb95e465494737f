// Reads from the environment which launcher started this process, its rank, and the number of processes. Torch-free.
#pragma once

#include <functional>
#include <map>
#include <string>

namespace penstock {

struct LaunchedAs {
  enum class Kind {
    alone,    // no launcher
    mpi,      // mpirun, mpiexec or srun with PMI
    torchrun  // torchrun-style RANK and WORLD_SIZE, or srun without PMI where MASTER_ADDR is set; more than one
  };
  Kind kind = Kind::alone;
  int rank = 0;
  int size = 1;
  std::string by = "hand";  // for messages, e.g. "mpirun (OMPI_COMM_WORLD_SIZE = 4)"
};

/// Returns the value of a variable; null when it is not set.
using Environment = std::function<const char*(const char*)>;

/// Reads the launchers' variables; those of MPI take precedence over torchrun's.
/// Throws ConfigError when a variable is not a number, when the rank is outside the world, when MPI and torchrun
/// disagree, and for several srun tasks without PMI and without MASTER_ADDR, each of which would run the whole job by
/// itself.
LaunchedAs launched_as(const Environment& environment);

/// The same for this process's environment.
LaunchedAs launched_as();

/// The store at which processes meet that MPI does not join: c10d's TCPStore, as torchrun's variables describe it.
struct Rendezvous {
  std::string address;  // MASTER_ADDR: a name or a number
  int port = 0;         // MASTER_PORT
  /// Whether the launcher opens the store (TORCHELASTIC_USE_AGENT_STORE = True); otherwise rank 0 does.
  bool is_open = false;
  /// How often the launcher has restarted the processes (TORCHELASTIC_RESTART_COUNT).
  int restarts = 0;
};

/// Throws ConfigError when MASTER_ADDR or MASTER_PORT is missing or not usable.
Rendezvous rendezvous(const Environment& environment);

/// The variables to set before MPI_Init in a job whose processes are all on one host; none for other jobs, and not
/// those that are set already.
///   * OMPI_MCA_btl: messages use shared memory alone, so that no process listens on the network.
///   * OMPI_MCA_pml: the layer above is named, unless OMPI_MCA_mtl is set. To choose one, Open MPI loads the libraries of
///     Omni-Path and its predecessor, which time the processor's clock for a tenth of a second each.
std::map<std::string, std::string> local_mpi_settings(const Environment& environment);

/// The variable that `penstock launch` sets to 1 for every rank, because each rank's output goes to its own log.
inline constexpr const char* log_every_rank_variable = "PENSTOCK_LOG_EVERY_RANK";

/// Whether that variable is set to 1.
bool logs_every_rank(const Environment& environment);

/// The same for this process's environment.
bool logs_every_rank();

}  // namespace penstock
