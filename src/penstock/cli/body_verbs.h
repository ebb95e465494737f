// The verbs that need LibTorch, one file each. Each adds itself to the program; `exit_code` is what it came to.
#pragma once

#include <CLI/App.hpp>

namespace penstock {

void add_train(CLI::App& app, int& exit_code);   // verb_train.cc
void add_bench(CLI::App& app, int& exit_code);   // verb_bench.cc
void add_doctor(CLI::App& app, int& exit_code);  // verb_doctor.cc

}  // namespace penstock
