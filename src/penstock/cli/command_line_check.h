// Checks of command lines, and their error messages.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "penstock/base/process.h"

namespace penstock::cli {

/// Sets the heading in the help for options that are added to `app` from now on. Returns `app`.
CLI::App& in_theme(CLI::App& app, const std::string& theme);

/// Makes all numeric options of `app` and its subcommands reject numbers that do not fit into 64 bits; CLI11 alone
/// clamps them to the largest value. Call it after all options are added and before parsing.
void refuse_huge_numbers(CLI::App& app);

/// One line that describes `error`, which parsing with `app` threw. For an unknown flag it begins with the flag and
/// suggests the nearest known one.
std::string complaint_about(const CLI::App& app, const CLI::ParseError& error);

/// Why `flag`, such as "--keep-last-step", is not known, if an earlier version had it: "--keep-last-step was removed:
/// save checkpoints with ..."; else an empty string.
std::string removal_of(const std::string& flag);

/// Follows the line's verbs and subverbs up to the first flag. Throws ConfigError for an unknown verb, suggesting the
/// nearest one, and for a missing verb, listing all.
void require_known_verb(const CLI::App& app, const CommandLine& line);

}  // namespace penstock::cli
