// Reads from the environment which launcher started this process, its rank, and the number of processes. Torch-free.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "penstock/base/ids.h"
#include "penstock/base/process.h"

namespace penstock::joining {

struct LaunchedAs {
  enum class Kind {
    alone,    // no launcher, or torchrun's world of one process
    mpi,      // mpirun, mpiexec or srun with PMI
    torchrun  // torchrun-style RANK and WORLD_SIZE, or srun without PMI where MASTER_ADDR is set; more than one
  };
  Kind kind = Kind::alone;
  int rank = 0;
  int size = 1;
  std::string by = "hand";          // for messages, e.g. "mpirun (OMPI_COMM_WORLD_SIZE = 4)"
  std::string start = "mpirun -n";  // for messages: the command that starts processes likewise, without their number
  bool has_launcher = false;        // whether `by` is a launcher: also true in torchrun's world of one process
};

/// The transport that the user names: it decides whose variables hold where launchers are nested.
enum class AskedTransport {
  any,  // none, or threads
  mpi,
  gloo  // also nccl: RANK and WORLD_SIZE hold, even within an MPI job of several processes
};

/// Reads the launchers' variables. Those of MPI take precedence over torchrun's, unless MPI has started only one
/// process, or the transport gloo is asked for.
/// Throws ConfigError when a variable is not a number, when the rank is outside the world, when MPI and torchrun
/// disagree, when only one of a launcher's two variables is set and tells of several processes, and for several srun
/// tasks without PMI and without MASTER_ADDR: in these cases each process would run the whole job by itself.
LaunchedAs launched_as(AskedTransport asked = AskedTransport::any, const Environment& environment = own_environment);

/// The same for programs that are no part of a job: a number of processes without a rank says nothing to them.
LaunchedAs launched_as_whole(const Environment& environment = own_environment);

/// This process's number among those of its host, where its launcher says it. Never throws for invalid variables.
std::optional<int> launched_local_rank(const Environment& environment = own_environment);

/// torchrun's variables for a process that MPI has started, so that code written for torchrun finds its place: RANK and
/// WORLD_SIZE, and LOCAL_RANK where the launcher says it; and PENSTOCK_RANK_COPIES, by which launched_as() knows that
/// the first two are copies, in programs that the process starts as well. None for a world of one process, or where
/// RANK or WORLD_SIZE is set, because halves of two identities contradict each other; LOCAL_RANK is never replaced.
std::map<std::string, std::string> rank_copies(const Environment& environment, WorldRank rank, int size);

/// Sets rank_copies() in this process's environment. To be called once, when MPI starts: no other thread may read the
/// environment meanwhile.
void export_rank(WorldRank rank, int size);

/// The store at which processes meet that MPI does not join: c10d's TCPStore, as torchrun's variables describe it.
struct Rendezvous {
  std::string address;  // MASTER_ADDR: a name or a number
  int port = 0;         // MASTER_PORT
  /// Whether the launcher opens the store (TORCHELASTIC_USE_AGENT_STORE = True); otherwise rank 0 does.
  bool is_open = false;
};

/// Throws ConfigError when MASTER_ADDR or MASTER_PORT is missing or not usable.
Rendezvous rendezvous(const Environment& environment);

/// The variables to set before MPI_Init in a job whose processes are all on one host; none for other jobs, and not
/// those that are set already.
///   * OMPI_MCA_btl: messages use shared memory alone, so that no process listens on the network.
///   * OMPI_MCA_pml: the layer above is named, unless OMPI_MCA_mtl is set. To choose one, Open MPI loads the libraries
///     of Omni-Path and its predecessor, which time the processor's clock for a tenth of a second each.
std::map<std::string, std::string> local_mpi_settings(const Environment& environment);

/// The variable that `penstock launch` sets to 1 for every rank, whose output goes to a log of its own; 0 overrides.
inline constexpr const char* log_every_rank_variable = "PENSTOCK_LOG_EVERY_RANK";

/// Whether each rank should print progress because its output goes to a log of its own: that variable is 1, or, if it
/// is not set, Open MPI's variable for `mpirun --output-filename` is set. srun does not tell its tasks where their
/// output goes.
bool logs_every_rank(const Environment& environment = own_environment);

}  // namespace penstock::joining
