// The flags by which verbs take costs.
#pragma once

#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "penstock/schedule/costs.h"

namespace penstock {

class CostFlags {
 public:
  /// Adds --cost-f, --cost-i, --cost-w, --cost-update, --cost-comm, --weight-share and --cost-file. `this` must
  /// outlive the parsing.
  void add_to(CLI::App& verb);

  /// What the file says, or else Costs::unit(), with the flags that are given in its place. Throws ConfigError for
  /// flags that are no costs, DataError for a file that holds none.
  Costs costs() const;

 private:
  std::optional<std::string> forward_;
  std::optional<std::string> input_grad_;
  std::optional<std::string> weight_grad_;
  std::optional<std::string> update_;
  std::optional<std::string> message_;
  std::optional<double> weight_share_;
  std::optional<std::string> file_;
};

}  // namespace penstock
