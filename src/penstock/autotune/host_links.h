// Measures how fast messages travel between the hosts of a world.
#pragma once

#include <optional>

#include "penstock/plan/layer_costs.h"
#include "penstock/world/world.h"

namespace penstock {

/// The speed of the slowest link between the hosts of consecutive pipeline ranks, in bytes per millisecond and
/// milliseconds, from messages of replica 0 that no other rank disturbs; equal on all ranks. Within a host the bytes of
/// a message cost next to nothing, so that ranks of one host are left out; none where all ranks are on one host.
/// Collective.
std::optional<LinkSpeed> speed_between_hosts(World& world);

/// One measurement of a link: messages that were sent and came back.
struct RoundTrip {
  double bytes = 0;  // of the message, each way
  double ms = 0;     // there and back
};

/// The speed from round trips of a short message and of a long one: the shortest of each.
LinkSpeed speed_of(const std::vector<RoundTrip>& short_trips, const std::vector<RoundTrip>& long_trips);

}  // namespace penstock
