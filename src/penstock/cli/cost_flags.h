// The flags that set costs.
#pragma once

#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "penstock/schedule/stage_costs.h"

namespace penstock {

class CostFlags {
 public:
  /// Adds --cost-f, --cost-i, --cost-w, --cost-update, --cost-comm, --weight-share, --activation-bytes and --cost-file.
  /// `this` must outlive the parsing.
  void add_to(CLI::App& verb);

  /// The costs of the file, or StageCosts::unit() without one, overridden by the other flags. Throws ConfigError for
  /// invalid flags, DataError for an invalid file.
  StageCosts costs() const;

 private:
  std::optional<std::string> forward_;
  std::optional<std::string> input_grad_;
  std::optional<std::string> weight_grad_;
  std::optional<std::string> update_;
  std::optional<std::string> message_;
  std::optional<double> weight_share_;
  std::optional<std::string> activation_bytes_;
  std::optional<std::string> file_;
};

}  // namespace penstock
