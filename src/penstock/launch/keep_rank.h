// The supervisor process of every rank of a launched job: `penstock launch-rank`, a verb for internal use by `launch`.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "penstock/base/process.h"
#include "penstock/launch/job_logs.h"

namespace penstock {

inline constexpr const char* keep_rank_verb = "launch-rank";

/// The signal by which `launch` asks the ranks to stop, through mpirun. mpirun passes it on and nothing more, whereas
/// after SIGTERM it kills the ranks within two seconds. The supervisors send SIGTERM to their ranks in its place.
/// Processes that do not know it ignore it.
inline constexpr int polite_stop_signal = SIGURG;

/// The command line with which the launcher starts `program` under a supervisor. `self` is this program's path; it and
/// the logs must have the same path on every host. With `show_first`, the output of rank 0 is also shown on the screen.
std::vector<std::string> supervisor_arguments(const std::string& self, const JobLogs& logs, bool show_first,
                                              const std::vector<std::string>& program);

/// Executes such a command line: runs the program with its streams redirected to its log files, copies these to the
/// launcher if requested, records its ending in the journal, and ends by the same signal or exit code. The rank writes
/// to its log directly, so no output is lost whatever happens to the screen, the supervisor or the rank. If the
/// supervisor is killed, the rank is killed too. A rank that was asked to stop and ends with the exit code for that
/// (143 after polite_stop_signal, 138 after SIGUSR1; of a verb of penstock any is_polite_stop()) counts as successful
/// for the launcher, which would otherwise end the other ranks while they save; the journal has its ending. Throws
/// ConfigError for arguments that supervisor_arguments() does not produce, and if the environment variables of the
/// launcher with the rank's number are missing.
[[noreturn]] void keep_rank(const CommandLine& line);

}  // namespace penstock
