// How the ranks of a job are started: the command line of mpirun or srun, from what the user asked for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// A host, and how many ranks it takes.
struct HostSlots {
  std::string name;
  int slots = 1;
};

/// What the machine that `launch` runs on offers, and what its environment says.
struct LaunchingMachine {
  int cores = 1;          // that this process may use; two threads of one core count once
  bool confined = false;  // to a part of the machine's cores
  bool root = false;
  bool root_may = false;    // Open MPI's two variables are set
  bool btl_chosen = false;  // OMPI_MCA_btl is set: the user knows how messages travel
};

LaunchingMachine this_machine();

struct LaunchSettings {
  int ranks = 0;                      // 0: as many as the hosts take
  std::vector<HostSlots> hosts = {};  // empty: this machine alone
  std::string launcher = "mpirun";    // a program; srun is known by its name, everything else is taken for Open MPI's
  std::string bind = "auto";          // auto, none, or what the launcher binds a rank to
};

/// Reads "a:2,b:2". A host without a number takes one rank; one that is named twice takes the sum.
/// Throws ConfigError for an empty name and for a number that is none or below 1.
std::vector<HostSlots> parse_hosts(std::string_view text);

/// The ranks of the job. Throws ConfigError when there is neither a number nor a host, and for a number below 1.
int rank_count(const LaunchSettings& settings);

/// Whether ranks have to share cores, or a host's slots.
bool is_crowded(const LaunchSettings& settings, const LaunchingMachine& machine);

/// Throws ConfigError where Open MPI would refuse to serve root.
void require_root_may(const LaunchSettings& settings, const LaunchingMachine& machine);

/// The arguments up to the program. Throws ConfigError for hosts that the launcher cannot fill so.
std::vector<std::string> launcher_arguments(const LaunchSettings& settings, const LaunchingMachine& machine);

/// `words` as a shell would have to be given them.
std::string as_shell_line(const std::vector<std::string>& arguments);

}  // namespace penstock
