#include "penstock/transport/transport.h"

#include "penstock/base/error.h"

namespace penstock {

void Transport::require_rank(WorldRank rank) const {
  require<TransportError>(rank.value() >= 0 && rank.value() < size(), "there is no rank ", rank.value(),
                          ": this world has ", size());
}

void Transport::require_can_send(WorldRank to) const {
  if (const auto reason = aborted()) throw WorldAborted(say("rank ", rank().value(), " sends no more: ", *reason));
  require_rank(to);
}

}  // namespace penstock
