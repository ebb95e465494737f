// Reports an error from one of several processes, so that the user sees it once.
#pragma once

#include <string>

#include "penstock/cli/exit_codes.h"

namespace penstock {

/// print_error() for a process that may be a rank of a job. Ranks other than 0 wait before they print: rank 0 most
/// likely reports the same error, and mpirun ends them when it exits.
int complain_as_rank(ExitCode code, const std::string& message);
/// Lets complain_as_rank() print at once, because rank 0 has died or stalled.
void report_in_place_of_rank_0();

}  // namespace penstock
