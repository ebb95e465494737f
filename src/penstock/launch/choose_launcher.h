// Decides what starts the ranks of a launched job: mpirun or srun, for ranks that MPI joins, or this program itself,
// for ranks that Gloo joins.
#pragma once

#include <string>
#include <vector>

#include "penstock/launch/launcher_arguments.h"

namespace penstock {

/// What the command line of `launch` says.
struct LauncherRequest {
  std::string transport = "auto";     // --transport of launch: "auto", "mpi" or "gloo"
  std::string launcher = {};          // --launcher; empty: not given
  std::vector<HostSlots> hosts = {};  // --hosts
  bool is_verb = false;               // whether the program is a verb of penstock
  std::string verb_transport = {};    // the transport that this verb's flags or settings name; empty: none
};

struct LauncherSupply {
  bool has_mpirun = false;    // whether this machine has an mpirun
  bool is_mpi_built = false;  // whether this build of penstock can join processes by MPI
};

/// The last value of a flag among a program's arguments, given as "--flag VALUE" or "--flag=VALUE"; empty if there is
/// none.
std::string flag_value(const std::vector<std::string>& arguments, const std::string& flag);

/// Whether this program itself starts the ranks, joined by Gloo. A transport that either command line names decides,
/// then --launcher and hosts other than this machine, which need mpirun or srun. Otherwise it is mpirun if there is
/// one, except for a verb of a build without MPI. Throws ConfigError for requests that contradict each other.
bool starts_over_gloo(const LauncherRequest& request, const LauncherSupply& supply);

/// Throws ConfigError unless all hosts are this machine, on which ranks over Gloo are started; `named_by`: what names
/// them, for the message.
void require_this_machine(const std::vector<HostSlots>& hosts, const std::string& named_by);

}  // namespace penstock
