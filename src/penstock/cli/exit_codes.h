// How a program of ours ends: 0 done (or help), 1 failed while running, 2 misuse. Whatever went wrong is told on
// stderr, after the program's name; nothing is told twice.
#pragma once

#include <iostream>
#include <string>

#include <CLI/CLI.hpp>

#include "penstock/base/error.h"
#include "penstock/cli/command_line_check.h"

namespace penstock {

enum class ExitCode : int { done = 0, failed = 1, misuse = 2 };

/// Arguments of the command line, as main() gets them.
struct CommandLine {
  int count = 0;
  char** arguments = nullptr;
};

inline int print_error(ExitCode code, const std::string& message) {
  std::cout.flush();
  std::cerr << "penstock: " << message << '\n';
  return static_cast<int>(code);
}

/// Parses the command line with `app`, whose callbacks are the verbs; runs `before` first. Returns the exit code of
/// the program, having told the user, through `complain_with`, what there is to tell.
template <class Before, class Complain>
int run_program(CLI::App& app, const CommandLine& line, Before&& before, Complain&& complain_with) {
  try {
    before();
    refuse_huge_numbers(app);
    app.parse(line.count, line.arguments);
    std::cout.flush();
    require<Failure>(std::cout.good(), "standard output cannot be written");
    return static_cast<int>(ExitCode::done);
  } catch (const CLI::Success& help) {
    app.exit(help);
    return static_cast<int>(ExitCode::done);
  } catch (const CLI::ParseError& error) {
    return complain_with(ExitCode::misuse, complaint_about(app, error));
  } catch (const Misuse& error) {
    return complain_with(ExitCode::misuse, error.what());
  } catch (const std::exception& error) {
    return complain_with(ExitCode::failed, error.what());
  }
}

}  // namespace penstock
