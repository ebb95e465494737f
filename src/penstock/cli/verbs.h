// The verbs that do not need LibTorch. Each function adds a verb to the program; the verb's callback does the work.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace penstock {

void add_checkpoint_verb(CLI::App& program);
/// `launched`: the arguments after "--", if any. The callback sets `exit_code` to that of the job. Both must outlive
/// the parsing.
void add_launch_verb(CLI::App& program, const std::optional<std::vector<std::string>>& launched, int& exit_code);
void add_plan_verb(CLI::App& program);
void add_schedule_verb(CLI::App& program);
void add_simulate_verb(CLI::App& program);
void add_trace_verb(CLI::App& program);

}  // namespace penstock
