// The verbs, one file each, and how the programs run them and end. Each function adds a verb to a program; the verb's
// callback does the work. Exit codes: 0 done (or help), 1 failed while running, 2 misuse, 75 ended before its goal, to be
// resumed (as in sysexits.h: try again), 128 + n after signal n. Every error is written to stderr once, after the
// program's name.
#pragma once

#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "penstock/base/error.h"
#include "penstock/base/process.h"
#include "penstock/base/text.h"
#include "penstock/cli/command_line_check.h"

namespace penstock::cli {

enum class ExitCode : int { done = 0, failed = 1, misuse = 2, unfinished = 75 };

/// Writes "penstock: MESSAGE" to stderr, as public_text(), after flushing stdout. Returns `code` as an exit code.
inline int print_error(ExitCode code, const std::string& message) {
  std::cout.flush();
  std::cerr << "penstock: " + public_text(message) + "\n";  // one write: lines of several processes do not mix
  return static_cast<int>(code);
}

/// print_error() for a process that may be a rank of a job. Ranks other than 0 wait before they print: rank 0 most
/// likely reports the same error, and mpirun ends them when it exits.
int complain_as_rank(ExitCode code, const std::string& message);
/// Lets complain_as_rank() print at once, because rank 0 has died or stalled.
void report_in_place_of_rank_0();

/// Calls `before`, then parses the command line with `app`, whose callbacks run the verbs. Returns the exit code of the
/// program. For errors calls `complain_with`(ExitCode, message), which reports them and returns the exit code.
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

// Of `penstock`, without LibTorch.

void add_checkpoint_verb(CLI::App& program);
/// `launched`: the arguments after "--", if any. The callback sets `exit_code` to that of the job. Both must outlive
/// the parsing.
void add_launch_verb(CLI::App& program, const std::optional<std::vector<std::string>>& launched, int& exit_code);
void add_fit_verb(CLI::App& program);
void add_plan_verb(CLI::App& program);
void add_schedule_verb(CLI::App& program);
void add_simulate_verb(CLI::App& program);
void add_tokenize_verb(CLI::App& program);
void add_trace_verb(CLI::App& program);

// Of `penstock-runtime`. The verbs set `exit_code`, which must outlive the parsing.

/// Makes `work`, which returns an exit code, what `verb` does; with --print-config, the verb prints its configuration
/// instead. Converts exceptions of LibTorch, whose messages contain stack frames, to a Failure with a message of one line.
void set_work(CLI::App& verb, int& exit_code, const std::function<int()>& work);  // runtime_main.cc

void add_train(CLI::App& app, int& exit_code);
void add_infer(CLI::App& app, int& exit_code);
void add_generate(CLI::App& app, int& exit_code);
void add_evaluate(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_profile(CLI::App& app, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);

}  // namespace penstock::cli
