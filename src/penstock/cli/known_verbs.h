// Checks the verbs of a command line.
#pragma once

#include "penstock/cli/exit_codes.h"

namespace penstock {

/// Follows the line's verbs and subverbs up to the first flag. Throws ConfigError for an unknown verb, suggesting the
/// nearest one, and for a missing verb, listing all.
void require_known_verb(const CLI::App& app, const CommandLine& line);

}  // namespace penstock
