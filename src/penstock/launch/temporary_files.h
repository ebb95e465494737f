// The temporary files of a job's MPI on this host, which stay behind if mpirun is killed. Inside this module only.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "penstock/launch/job_logs.h"
#include "penstock/transport/launch_environment.h"

namespace penstock {

/// Where Open MPI keeps the temporary files of the job in whose environment a process was started: the directory of
/// mpirun's session, and the beginning of the names of the ranks' files in shared memory. Empty without Open MPI.
struct TemporaryFiles {
  std::string session = {};        // "/tmp/ompi.HOST.0/pid.1234"
  std::string shared_memory = {};  // "/dev/shm/vader_segment.HOST.0.2d850001."
};

TemporaryFiles temporary_files(const Environment& environment);

/// Records them in the journal. One process of each host does so: the others do nothing.
void note_temporary_files(const JobLogs& logs);

/// Removes what the journal names and belongs to this user on this host. Only for a job whose processes have all ended;
/// `mpirun` is the number of the process that was its mpirun: a session of another process is left alone. Returns the
/// removed paths. Never throws for a file that cannot be removed.
std::vector<std::string> remove_temporary_files(const JobLogs& logs, pid_t mpirun);

}  // namespace penstock
