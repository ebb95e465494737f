// The verbs, one file each. Each function adds a verb to a program; the verb's callback does the work.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace penstock {

// Of `penstock`, without LibTorch.

void add_checkpoint_verb(CLI::App& program);
/// `launched`: the arguments after "--", if any. The callback sets `exit_code` to that of the job. Both must outlive
/// the parsing.
void add_launch_verb(CLI::App& program, const std::optional<std::vector<std::string>>& launched, int& exit_code);
void add_plan_verb(CLI::App& program);
void add_schedule_verb(CLI::App& program);
void add_simulate_verb(CLI::App& program);
void add_trace_verb(CLI::App& program);

// Of `penstock-runtime`. The callbacks set `exit_code`, which must outlive the parsing.

/// Runs a verb and returns its exit code. Converts exceptions of LibTorch, whose messages contain stack frames, to a
/// Failure with a message of one line.
int run_verb(const std::function<int()>& verb);  // runtime_main.cc

void add_train(CLI::App& app, int& exit_code);
void add_infer(CLI::App& app, int& exit_code);
void add_evaluate(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_profile(CLI::App& app, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);

}  // namespace penstock
