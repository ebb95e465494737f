// Which stages use a parameter.
#pragma once

#include <string>
#include <vector>

#include "penstock/model/stages.h"

namespace penstock {

/// One call that uses a parameter.
struct ParameterUse {
  int node = 0;
  StageId stage;
};

/// All uses of one parameter, in graph order.
struct ParameterUses {
  std::vector<ParameterUse> list;

  /// The lowest stage that uses it. The owner stage sums its gradient, saves it and counts it in norms.
  StageId owner() const;
  /// Whether several stages use it.
  bool is_tied() const;
  /// Whether `stage` uses it.
  bool are_on(StageId stage) const;
};

/// The uses of `parameter` of `owner` (which is itself not tied to another one): by calls of its own layer and by calls
/// of the layers that are tied to it. Empty if `owner` has no such parameter.
ParameterUses uses_of(const StagedGraph& staged, const LayerRecord& owner, const std::string& parameter);

}  // namespace penstock
