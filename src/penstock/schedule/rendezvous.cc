#include "penstock/schedule/rendezvous.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/schedule/replay.h"

namespace penstock {
namespace {

std::size_t table_entry_of(const Event& arrival, const Dependencies& dependencies) {
  return table_entry(*dependencies.lane(arrival.stage, arrival.to),
                     arrival.kind == EventKind::arrived_forward ? Direction::forward : Direction::backward);
}

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
            counted(posts, "post"), " its receive is not posted yet, the channel needs ", channel.order_posts),
        cell};
  }
  return std::nullopt;
}

}  // namespace

std::size_t table_entry(const Instruction& message, const Dependencies& dependencies) {
  const Link link = link_of(message);
  return table_entry(*dependencies.lane(link.from, link.to), link.gradient ? Direction::backward : Direction::forward);
}

ChannelMap::ChannelMap(const Schedule& schedule, const Dependencies& dependencies)
    : entries_(2 * dependencies.lane_count()), pipeline_of_(schedule.pipeline_of) {
  add_channels(schedule, dependencies);
  const auto m = static_cast<std::size_t>(schedule.micro_batches);
  std::vector<int> place(entries_ * m);  // of each message in its channel
  for (const Order& order : schedule.orders)
    for (const Instruction& instruction : order) {
      if (!is_send(instruction.op())) continue;
      const std::size_t at = table_entry(instruction, dependencies);
      auto& messages = channels_[number_of(at, instruction.micro_batch())].messages;
      place[at * m + instruction.micro_batch().index()] = static_cast<int>(messages.size());
      messages.push_back({instruction.stage(), instruction.peer(), instruction.micro_batch()});
    }
  for (const Order& order : schedule.orders)
    for (const Instruction& instruction : order) {
      if (!is_compute(instruction.op())) continue;
      dependencies.for_each_predecessor(instruction, [&](const Event& event) {
        if (!is_arrival(event)) return;
        const std::size_t at = table_entry_of(event, dependencies);
        Channel& channel = channels_[number_of(at, event.micro_batch)];
        const int message = place[at * m + event.micro_batch.index()];
        const auto take = static_cast<int>(channel.takes.size());
        channel.takes.push_back(message);
        channel.messages[static_cast<std::size_t>(message)].take = take;
        channel.order_posts = std::max(channel.order_posts, message - take + 1);
      });
    }
}

void ChannelMap::add_channels(const Schedule& schedule, const Dependencies& dependencies) {
  number_.resize(entries_ * static_cast<std::size_t>(schedule.pipeline_count()));
  std::map<std::tuple<Rank, Rank, Direction>, std::vector<std::size_t>> entries_of;
  const bool forward_only = schedule.is_forward_only();
  for (int pipeline = 0; pipeline < schedule.pipeline_count(); ++pipeline) {
    const std::vector<Rank>& ranks = schedule.placement(pipeline);
    const std::size_t first = static_cast<std::size_t>(pipeline) * entries_;
    for (std::size_t lane = 0; lane < dependencies.lane_count(); ++lane) {
      const Link& link = dependencies.link_of_lane(lane);
      const Rank from = ranks[link.from.index()];
      const Rank to = ranks[link.to.index()];
      if (from == to) continue;
      entries_of[{from, to, Direction::forward}].push_back(first + table_entry(lane, Direction::forward));
      if (link.gradient && !forward_only)
        entries_of[{to, from, Direction::backward}].push_back(first + table_entry(lane, Direction::backward));
    }
  }
  for (const auto& [key, entries] : entries_of) {
    for (const std::size_t entry : entries) number_[entry] = channels_.size();
    channels_.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key)});
  }
}

std::size_t ChannelMap::number(const Instruction& message, const Dependencies& dependencies) const {
  return number_of(table_entry(message, dependencies), message.micro_batch());
}

std::size_t ChannelMap::number(const Event& arrival, const Dependencies& dependencies) const {
  return number_of(table_entry_of(arrival, dependencies), arrival.micro_batch);
}

Violation deadlock(const Schedule& schedule, const Reach& progress, const Waiting& waiting) {
  const auto instruction_at = [&](const GridCell& cell) -> const Instruction& {
    return schedule.orders[cell.rank.index()][static_cast<std::size_t>(cell.position)];
  };
  std::size_t rank = 0;
  while (static_cast<std::size_t>(progress.reached[rank]) == schedule.orders[rank].size()) ++rank;

  constexpr std::size_t most_named = 6;
  std::vector<bool> seen(schedule.orders.size(), false);
  GridCell stuck{Rank(static_cast<std::int32_t>(rank)), progress.reached[rank]};
  std::string reason = say(waiting.title, ": rank ", rank, " is at ", waiting.text(instruction_at(stuck)));
  for (std::size_t named = 0; !seen[rank]; ++named) {
    seen[rank] = true;
    const std::optional<GridCell> needed = waiting.obstacle(progress.missing[rank]);
    if (!needed) return {reason + ", which needs a value that no instruction computes", stuck};
    stuck = {needed->rank, progress.reached[needed->rank.index()]};
    if (needed->rank.index() == rank)
      return {reason + say(", which needs ", to_string(instruction_at(*needed)), ", later on that rank"), stuck};
    if (named < most_named)
      reason += say(", which needs ", to_string(instruction_at(*needed)), " of rank ", needed->rank.value(),
                    ", which is at ", waiting.text(instruction_at(stuck)));
    else if (named == most_named)
      reason += ", and so on";
    rank = needed->rank.index();
  }
  return {reason, stuck};
}

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
    return Violation{say("posts = ", posts, ", but the schedule has no messages: pass the result of lower()"), {}};
  const ChannelMap map(schedule, dependencies);
  if (auto early = find_early_take(schedule, dependencies, map.channels(), posts)) return early;
  const Reach progress = replay_with_posts(schedule, dependencies, map, posts);
  if (progress.finished) return std::nullopt;

  const auto obstacle = [&](std::size_t event) {
    const Event missing = dependencies.event(event);
    return is_arrival(missing) ? find_taker(schedule, dependencies, missing)
                               : find_producer(schedule, dependencies, event);
  };
  // A SEND halts only when its channel is full: what it sends was computed earlier on its rank.
  const auto text = [&](const Instruction& waits) {
    if (!is_send(waits.op())) return to_string(waits);
    return say(to_string(waits), " (", to_string(map.channels()[map.number(waits, dependencies)]), " is full)");
  };
  return deadlock(
      schedule, progress,
      {.title = say("deadlock with ", counted(posts, "post"), " per channel"), .obstacle = obstacle, .text = text});
}

}  // namespace penstock
