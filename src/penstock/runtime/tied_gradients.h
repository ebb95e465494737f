// Tied parameters: gradients summed over the stages that use one, at its owner, and told to all of them; and values kept
// equal. Sending never waits, so a rank sends all it has before it waits for anything: whatever the order of the ranks'
// lists, no two wait for each other.
#pragma once

#include <functional>
#include <vector>

#include "penstock/runtime/stage.h"
#include "penstock/transport/transport.h"

namespace penstock {

/// The way from stage to stage within one pipeline replica.
struct TieRoute {
  Transport& endpoint;
  std::uint32_t pipeline = 0;
  std::uint64_t round = 0;  // the step, or a number of its own for each synchronisation of values
  std::function<WorldRank(StageId)> rank_of;
};

/// Sends what `stage` gathered for parameters whose owner is another stage there, use by use.
void send_uses(const TieRoute& route, const Stage& stage);
/// By parameter of `stage`: for those that are tied and at owner here, the sum over all uses in graph order; undefined
/// for the others, and where no use has a gradient. Waits for the uses of other stages.
Tensors sum_tied(const TieRoute& route, const Stage& stage);
/// Sends `totals`, by parameter, to the other stages that use them.
void send_totals(const TieRoute& route, const Stage& stage, const Tensors& totals);
/// The totals of parameters whose owner is elsewhere, put into `totals`. Waits.
void receive_totals(const TieRoute& route, const Stage& stage, Tensors& totals);

/// The same for values, frozen ones too: owner's go to the other stages that use them.
void send_values(const TieRoute& route, const Stage& stage);
void receive_values(const TieRoute& route, const Stage& stage);

}  // namespace penstock
