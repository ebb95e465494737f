// Which verb was meant.
#pragma once

#include "penstock/cli/exit_codes.h"

namespace penstock {

/// Follows the arguments of the line down to a verb without verbs of its own, stopping at the first flag. Throws
/// ConfigError that names the nearest verb for an argument that is none, and all verbs where one is missing.
void require_known_verb(const CLI::App& app, const CommandLine& line);

}  // namespace penstock
