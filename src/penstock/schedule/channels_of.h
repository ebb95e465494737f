// The channels of a given schedule, and the posts that they need.
#pragma once

#include <optional>
#include <vector>

#include "penstock/schedule/channel.h"
#include "penstock/schedule/dependencies.h"

namespace penstock {

/// The channels that have messages, ordered by sender, receiver and direction. `links` are those that the model needs;
/// by default links_of(schedule). Time and memory are linear in the number of instructions. Throws ScheduleError for a
/// schedule that validate() refuses or that is not lowered.
std::vector<Channel> channels_of(const Schedule& schedule, const std::optional<Links>& links = {});

/// The least number of posts per channel with which `schedule` runs to its end; 0 if it has no messages.
/// ValidateOptions::posts checks a given number. It takes the time of a few replays. Throws like channels_of().
int least_posts(const Schedule& schedule, const std::optional<Links>& links = {});

/// The dependencies of a schedule with channels. Throws like channels_of().
Dependencies dependencies_of_messages(const Schedule& schedule, const std::optional<Links>& links);

}  // namespace penstock
