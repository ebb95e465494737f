// The verbs that need no LibTorch. Each adds itself to the program and does its work in its callback.
#pragma once

#include <CLI/CLI.hpp>

namespace penstock {

void add_plan_verb(CLI::App& program);
void add_schedule_verb(CLI::App& program);
void add_simulate_verb(CLI::App& program);
void add_trace_verb(CLI::App& program);

}  // namespace penstock
