// What runs around every rank of a started job: `penstock launch-rank`, a verb that `launch` alone uses.
#pragma once

#include <string>
#include <vector>

#include "penstock/cli/exit_codes.h"
#include "penstock/cli/job_logs.h"

namespace penstock {

inline constexpr const char* keep_rank_verb = "launch-rank";

/// The arguments that make the launcher start `program` as a kept rank. `self` is this program's path; it and the logs have
/// the same path on every host. `show_first`: rank 0 is seen on the screen too.
std::vector<std::string> supervisor_arguments(const std::string& self, const JobLogs& logs, bool show_first,
                                              const std::vector<std::string>& program);

/// Obeys such arguments: runs the program with its streams in its log files, copies these to the launcher where asked for,
/// notes its ending in the journal, and ends as it did, by the same signal or exit code. What the rank writes is in its
/// log at once, whatever happens to the screen, to us or to it. When we are killed, so is the rank.
/// Throws ConfigError for arguments that `supervisor_arguments` does not write and where no launcher says which rank this is.
[[noreturn]] void keep_rank(const CommandLine& line);

}  // namespace penstock
