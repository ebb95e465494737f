// Tied parameters: the owner stage sums the gradients of all uses and sends the total to the other stages; values are
// synchronised in the same way. Sending never blocks, and each rank sends all its messages before it waits, so that no
// order of the ranks' instructions can deadlock.
#pragma once

#include <cstdint>

#include "penstock/rank/stage.h"
#include "penstock/rank/stage_placement.h"

namespace penstock {

/// Addresses the stages of one pipeline replica.
struct TieRoute {
  const StagePlacement& placement;
  std::uint64_t round = 0;  // the step; for values a counter of their synchronisations, from StepKey::tied_values on
};

/// Sends the gradient of every use of `stage` to the parameter's owner stage, where that is another stage.
void send_uses(const TieRoute& route, const Stage& stage);
/// By parameter of `stage`: the sum over all uses in graph order, for tied parameters that this stage owns; undefined
/// for the others, and where no use has a gradient. Waits for the uses of other stages.
Tensors sum_tied(const TieRoute& route, const Stage& stage);
/// Sends `totals`, by parameter, to the other stages that use the parameters.
void send_totals(const TieRoute& route, const Stage& stage, const Tensors& totals);
/// Receives the totals of parameters that other stages own into `totals`. Waits.
void receive_totals(const TieRoute& route, const Stage& stage, Tensors& totals);

/// The same for values, including frozen ones: the owner sends them to the other stages that use them.
void send_values(const TieRoute& route, const Stage& stage);
void receive_values(const TieRoute& route, const Stage& stage);

}  // namespace penstock
