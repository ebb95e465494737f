// The verbs that need no LibTorch. Each adds itself to the program and does its work in its callback.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace penstock {

/// `behind`: the arguments behind --, if there are such; they and `exit_code`, what the job came to, outlive the parsing.
void add_launch_verb(CLI::App& program, const std::optional<std::vector<std::string>>& behind, int& exit_code);
void add_plan_verb(CLI::App& program);
void add_schedule_verb(CLI::App& program);
void add_simulate_verb(CLI::App& program);
void add_trace_verb(CLI::App& program);

}  // namespace penstock
