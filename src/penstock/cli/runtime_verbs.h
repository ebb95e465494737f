// The verbs that need LibTorch, one file each. Each function adds a verb to the program; its callback sets `exit_code`,
// which must outlive the parsing.
#pragma once

#include <functional>

#include <CLI/App.hpp>

namespace penstock {

/// Runs a verb and returns its exit code. Converts exceptions of LibTorch, whose messages contain stack frames, to a
/// Failure with a message of one line.
int run_verb(const std::function<int()>& verb);  // runtime_main.cc

void add_train(CLI::App& app, int& exit_code);     // verb_train.cc
void add_infer(CLI::App& app, int& exit_code);     // verb_infer.cc
void add_evaluate(CLI::App& app, int& exit_code);  // verb_evaluate.cc
void add_bench(CLI::App& app, int& exit_code);     // verb_bench.cc
void add_profile(CLI::App& app, int& exit_code);   // verb_profile.cc
void add_doctor(CLI::App& app, int& exit_code);    // verb_doctor.cc

}  // namespace penstock
