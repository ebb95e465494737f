// What is wrong with a command line, said so that it can be corrected.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace penstock {

/// Puts the options that are added to `app` from now on under the heading `theme` of its help, and returns `app`.
CLI::App& in_theme(CLI::App& app, const std::string& theme);

/// Makes every option of `app` and its subcommands that takes numbers refuse those that no 64-bit number can hold;
/// CLI11 alone takes the largest one in their place. Call it when all options are added, before parsing.
void refuse_huge_numbers(CLI::App& app);

/// One line about `error`, which parsing with `app` threw. A flag that does not exist is named first, together with the
/// known flag that is nearest to it.
std::string complaint_about(const CLI::App& app, const CLI::ParseError& error);

}  // namespace penstock
