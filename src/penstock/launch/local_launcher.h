// The launcher of jobs whose ranks Gloo joins: `penstock launch-local`, a verb for internal use by `launch`. It takes
// the place of mpirun on one machine.
#pragma once

#include <string>
#include <vector>

#include "penstock/base/process.h"

namespace penstock {

inline constexpr const char* local_launcher_verb = "launch-local";

/// What it is told.
struct LocalJob {
  int ranks = 1;
  int master_port = 0;    // at which rank 0 opens the store of the job; free, and another one for each attempt
  int cores_of_each = 0;  // the cores that each rank is bound to; 0: none
};

/// The launcher's command line up to the program. `self` is this program's path.
std::vector<std::string> local_launcher_arguments(const std::string& self, const LocalJob& job);

/// Executes such a command line: starts the program once for each rank, in a process group of its own, with torchrun's
/// variables (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT) and without those of other
/// launchers, and waits until all have ended. Standard input is that of rank 0, unless it is a terminal. When a rank
/// ends with an exit code other than 0 or by a signal, the others have a second in which they fail by themselves, as
/// under mpirun; then they receive SIGTERM, and SIGKILL two seconds later. SIGTERM, SIGINT, SIGHUP and SIGQUIT to this
/// process have the same effect at once; SIGUSR1, SIGUSR2 and polite_stop_signal are sent to all ranks' groups. At the
/// end no descendant is left; if this process is killed, its ranks are too. Ends with the exit code of the first rank
/// that failed, 128 + n for signal n; 128 + n after a signal n that ended the job; otherwise 0. Throws ConfigError for
/// arguments that local_launcher_arguments() does not produce, and Failure if the program cannot be started.
[[noreturn]] void run_local_launcher(const CommandLine& line);

}  // namespace penstock
