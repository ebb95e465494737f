// What a plan is shown as: a table for people, a file for training, JSON for machines.
#pragma once

#include <string>

#include <CLI/App.hpp>

#include "penstock/plan/planner.h"

namespace penstock {

struct PlanOutput {
  std::string output;
  std::string json;
  bool shows_all = false;

  void add_to(CLI::App& verb);
  /// Throws ConfigError where two would go to one place, or a file cannot be there.
  void check() const;
  void write(const Planned& planned) const;
};

}  // namespace penstock
