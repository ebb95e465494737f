// Builds the command line of the launcher that starts the ranks of a job: mpirun, srun, or this program itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// A host and the number of ranks it takes.
struct HostSlots {
  std::string name;
  int slots = 1;
};

/// Properties of the machine and the environment in which `launch` runs.
struct LaunchingMachine {
  int cores = 1;            // physical cores that this process may use
  bool confined = false;    // whether these are not all cores of the machine
  bool btl_chosen = false;  // whether OMPI_MCA_btl is set, so that `launch` leaves the choice of transports alone
};

LaunchingMachine this_machine();

struct LaunchSettings {
  int ranks = 0;                      // 0: the sum of the hosts' slots
  std::vector<HostSlots> hosts = {};  // empty: this machine
  std::string launcher = "mpirun";    // a program; "srun" is recognised by name, any other is treated as Open MPI's
  std::string bind = "auto";          // "auto", "none", or a binding unit of the launcher
  /// Ranks that Gloo joins: `launcher` is this program's path, and starts them by its verb local_launcher_verb. All
  /// hosts are this machine, and `bind` is "auto" or "none".
  bool over_gloo = false;
  int master_port = 0;  // over Gloo: the port of the store at which the ranks meet
};

/// Parses "a:2,b:2". A host without a number takes one rank; slots of a repeated host are added.
/// Throws ConfigError for an empty name and for an invalid number or one below 1.
std::vector<HostSlots> parse_hosts(std::string_view text);

/// Whether the name is "localhost" or that of this machine.
bool is_this_machine(const HostSlots& host);

/// The sum of the hosts' slots.
int slots_of(const std::vector<HostSlots>& hosts);

/// Whether all ranks are started on this machine.
bool is_on_this_machine(const LaunchSettings& settings);

/// Whether the launcher is Slurm's srun.
bool is_srun(const LaunchSettings& settings);

/// The number of ranks of the job. Throws ConfigError if neither a number nor a host is given, and for a number below
/// 1.
int rank_count(const LaunchSettings& settings);

/// Whether ranks share cores, or there are more ranks than slots.
bool is_crowded(const LaunchSettings& settings, const LaunchingMachine& machine);

/// The launcher's command line up to the program. Throws ConfigError if the launcher cannot place the ranks on the
/// hosts as requested.
std::vector<std::string> launcher_arguments(const LaunchSettings& settings, const LaunchingMachine& machine);

/// `arguments` as one line, quoted for a shell.
std::string as_shell_line(const std::vector<std::string>& arguments);

}  // namespace penstock
