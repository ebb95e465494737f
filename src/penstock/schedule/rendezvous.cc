#include "penstock/schedule/rendezvous.h"

#include <vector>

#include "penstock/base/error.h"
#include "penstock/schedule/deadlock.h"

namespace penstock {
namespace {

/// The event that is the take with this number.
Event event_of_take(const Channel& channel, std::size_t take, const Dependencies& dependencies) {
  const auto message = static_cast<std::size_t>(channel.takes[take]);
  Event event;
  dependencies.for_each_given(channel.receive(channel.messages[message]), [&](const Event& given) { event = given; });
  return event;
}

/// The instruction that takes the message with this arrival.
std::optional<GridCell> find_taker(const Schedule& schedule, const Dependencies& dependencies, const Event& arrival) {
  return find_instruction(schedule, [&](const Instruction& instruction) {
    bool takes = false;
    if (is_compute(instruction.op()))
      dependencies.for_each_predecessor(instruction, [&](const Event& event) { takes = takes || event == arrival; });
    return takes;
  });
}

std::string posts_text(int posts) { return say(posts, posts == 1 ? " post" : " posts"); }

/// A take that comes so early that its message's receive would be posted after it.
std::optional<Violation> find_early_take(const Schedule& schedule, const Dependencies& dependencies,
                                         const std::vector<Channel>& channels, int posts) {
  for (const Channel& channel : channels) {
    if (channel.order_posts <= posts) continue;
    std::size_t take = 0;
    while (channel.takes[take] - static_cast<int>(take) < posts) ++take;
    const ChannelMessage& message = channel.messages[static_cast<std::size_t>(channel.takes[take])];
    const std::optional<GridCell> cell = find_taker(schedule, dependencies, event_of_take(channel, take, dependencies));
    const Instruction& taker = schedule.orders[cell->rank.index()][static_cast<std::size_t>(cell->position)];
    return Violation{
        say(to_string(taker), " on rank ", cell->rank.value(), " needs ", to_string(channel.receive(message)),
            ", message ", channel.takes[take], " of ", to_string(channel), ", after ", take, " others: with ",
            posts_text(posts), " its receive is not posted yet, the channel needs ", channel.order_posts),
        cell};
  }
  return std::nullopt;
}

}  // namespace

Reach replay_with_posts(const Schedule& schedule, const Dependencies& dependencies, const ChannelMap& map, int posts) {
  EventTable events(dependencies.event_count(), schedule.orders.size());
  const auto room = 2 * static_cast<std::size_t>(posts);
  std::vector<std::size_t> sends(map.channels().size(), 0);  // executed ones, per channel

  return run_lists(schedule, events, [&](std::size_t, int, const Instruction& instruction) {
    if (is_receive(instruction.op())) return no_event;
    std::size_t missing = no_event;
    dependencies.for_each_predecessor(instruction, [&](const Event& event) {
      if (missing != no_event) return;
      const std::size_t index = dependencies.index(event);
      if (events.happened(index)) return;
      if (!is_arrival(event)) {
        missing = index;
        return;
      }
      const std::size_t sent = dependencies.index(sending_of(event));
      if (events.happened(sent))
        events.happen(index, 0);  // this is the take
      else
        missing = sent;
    });
    if (missing != no_event) return missing;
    if (is_send(instruction.op())) {
      const std::size_t number = map.number(instruction, dependencies);
      const Channel& channel = map.channels()[number];
      if (sends[number] >= room) {
        const std::size_t taken = dependencies.index(event_of_take(channel, sends[number] - room, dependencies));
        if (!events.happened(taken)) return taken;
      }
      ++sends[number];
    }
    dependencies.for_each_given(instruction, [&](const Event& event) { events.happen(dependencies.index(event), 0); });
    return no_event;
  });
}

std::optional<Violation> find_lack_of_posts(const Schedule& schedule, const Dependencies& dependencies, int posts) {
  if (posts < 1) return Violation{say("posts = ", posts, ": at least 1 per channel is needed"), {}};
  if (!schedule.is_lowered() && dependencies.lane_count() > 0)
    return Violation{say("posts = ", posts, ", but the schedule has no messages: give the result of lower()"), {}};
  const ChannelMap map(schedule, dependencies);
  if (auto early = find_early_take(schedule, dependencies, map.channels(), posts)) return early;
  const Reach progress = replay_with_posts(schedule, dependencies, map, posts);
  if (progress.finished) return std::nullopt;

  const auto obstacle = [&](std::size_t event) {
    const Event missing = dependencies.event(event);
    return is_arrival(missing) ? find_taker(schedule, dependencies, missing)
                               : find_producer(schedule, dependencies, event);
  };
  // A SEND halts only where its channel is full: what it sends was computed earlier on its rank.
  const auto text = [&](const Instruction& waits) {
    if (!is_send(waits.op())) return to_string(waits);
    return say(to_string(waits), " (", to_string(map.channels()[map.number(waits, dependencies)]), " is full)");
  };
  return deadlock(
      schedule, progress,
      {.title = say("deadlock with ", posts_text(posts), " per channel"), .obstacle = obstacle, .text = text});
}

}  // namespace penstock
