// How one of several processes tells what went wrong: once, as far as it can be told from here.
#pragma once

#include <string>

#include "penstock/cli/exit_codes.h"

namespace penstock {

/// print_error(), for a process that may be one rank of a job. Ranks other than 0 wait before they speak: rank 0 most
/// likely says the same, and its end makes mpirun end them.
int complain_as_rank(ExitCode code, const std::string& message);

}  // namespace penstock
