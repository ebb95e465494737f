// Runs a schedule with a bounded number of posts per channel, as channel.h defines it. Inside this module only.
#pragma once

#include <optional>

#include "penstock/schedule/channel_map.h"
#include "penstock/schedule/replay.h"
#include "penstock/schedule/violation.h"

namespace penstock {

/// Replays `schedule`, which validate() accepts without posts, with at least Channel::order_posts posts. An instruction
/// that halts for a message misses the event of its SEND; a SEND that halts misses the arrival of the message whose
/// take makes room for it. Linear time.
Reach replay_with_posts(const Schedule& schedule, const Dependencies& dependencies, const ChannelMap& map, int posts);

/// The first violation of `schedule`, which validate() accepts without posts, with `posts` posts per channel. A
/// violation, too, is a number below 1, or a schedule that is not lowered although stages of different ranks are
/// linked.
std::optional<Violation> find_lack_of_posts(const Schedule& schedule, const Dependencies& dependencies, int posts);

}  // namespace penstock
