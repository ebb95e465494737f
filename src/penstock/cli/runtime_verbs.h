// The verbs that need LibTorch, one file each. Each adds itself to the program; `exit_code` is what it came to.
#pragma once

#include <functional>

#include <CLI/App.hpp>

namespace penstock {

/// Runs a verb. What LibTorch throws has a list of stack frames: here it becomes a Failure of one line.
int run_verb(const std::function<int()>& verb);  // runtime_main.cc

void add_train(CLI::App& app, int& exit_code);     // verb_train.cc
void add_infer(CLI::App& app, int& exit_code);     // verb_infer.cc
void add_evaluate(CLI::App& app, int& exit_code);  // verb_evaluate.cc
void add_bench(CLI::App& app, int& exit_code);     // verb_bench.cc
void add_profile(CLI::App& app, int& exit_code);   // verb_profile.cc
void add_doctor(CLI::App& app, int& exit_code);    // verb_doctor.cc

}  // namespace penstock
