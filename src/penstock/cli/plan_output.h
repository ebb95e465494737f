// The outputs of the planner: a table on the console, a plan file for training, and JSON.
#pragma once

#include <string>

#include <CLI/App.hpp>

#include "penstock/plan/planner.h"

namespace penstock::cli {

struct PlanOutput {
  std::string output;
  std::string json;
  bool shows_all = false;

  void add_to(CLI::App& verb);
  /// Throws ConfigError if two outputs have the same destination, or if a file cannot be written.
  void check() const;
  void write(const Planned& planned) const;
};

}  // namespace penstock::cli
