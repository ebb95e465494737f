// The flag --weight-gradients of training and of plan.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "penstock/schedule/weight_gradients.h"

namespace penstock {

/// Adds the flag; parsing it assigns a mode to `mode` (a WeightGradients, or an optional one), which must outlive the
/// parsing. Grouped is refused: only plans have it.
template <class Mode>
CLI::Option* add_weight_gradients(CLI::App& app, Mode& mode, const std::string& help) {
  std::vector<std::string> names;
  for (const auto named : {WeightGradients::stream, WeightGradients::fused, WeightGradients::automatic})
    names.emplace_back(to_string(named));
  const auto assign = [&mode](const std::string& name) { mode = weight_gradients_named(name).value(); };
  return app.add_option_function<std::string>("--weight-gradients", assign, help)->check(CLI::IsMember(names));
}

}  // namespace penstock
