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

/// All uses of one parameter, in graph order. Empty for what is no parameter.
struct ParameterUses {
  std::vector<ParameterUse> list;

  /// The lowest stage that uses it: sums its gradient, saves it, counts it in norms.
  StageId owner() const;
  /// Whether several stages use it.
  bool is_tied() const;
  bool are_on(StageId stage) const;
};

/// The uses of `parameter` of `home` (a parameter that is not tied to another one): by the calls of its own layer,
/// and by those of the layers that are tied to it.
ParameterUses uses_of(const StagedGraph& staged, const LayerRecord& owner, const std::string& parameter);

}  // namespace penstock
