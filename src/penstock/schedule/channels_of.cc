#include "penstock/schedule/channels_of.h"

#include <algorithm>

#include "penstock/base/error.h"
#include "penstock/schedule/rendezvous.h"
#include "penstock/schedule/validate.h"

namespace penstock {

Dependencies dependencies_of_messages(const Schedule& schedule, const std::optional<Links>& links) {
  validate(schedule, {.links = links, .activation_bound = {}}).require_ok(schedule);
  Dependencies dependencies(schedule, links ? *links : links_of(schedule));
  require<ScheduleError>(schedule.is_lowered() || dependencies.lane_count() == 0, "schedule '", schedule.name,
                         "' has no messages: pass the result of lower()");
  return dependencies;
}

std::vector<Channel> channels_of(const Schedule& schedule, const std::optional<Links>& links) {
  return ChannelMap(schedule, dependencies_of_messages(schedule, links)).channels();
}

int least_posts(const Schedule& schedule, const std::optional<Links>& links) {
  const Dependencies dependencies = dependencies_of_messages(schedule, links);
  const ChannelMap map(schedule, dependencies);
  int posts = 0;  // fewer do not suffice
  int enough = 0;
  for (const Channel& channel : map.channels()) {
    posts = std::max(posts, channel.order_posts);
    enough = std::max(enough, static_cast<int>(channel.messages.size()));
  }
  const auto runs = [&](int number) { return replay_with_posts(schedule, dependencies, map, number).finished; };
  // Most schedules run with the first number that is tried.
  for (int tried = posts; tried < enough; tried = 2 * tried) {
    if (runs(tried)) {
      enough = tried;
      break;
    }
    posts = tried + 1;
  }
  while (posts < enough) {
    const int middle = posts + (enough - posts) / 2;
    if (runs(middle))
      enough = middle;
    else
      posts = middle + 1;
  }
  return enough;
}

}  // namespace penstock
