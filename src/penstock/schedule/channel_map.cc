#include "penstock/schedule/channel_map.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "penstock/schedule/replay.h"

namespace penstock {
namespace {

std::size_t table_entry_of(const Event& arrival, const Dependencies& dependencies) {
  return table_entry(*dependencies.lane(arrival.stage, arrival.to),
                     arrival.kind == EventKind::arrived_forward ? Direction::forward : Direction::backward);
}

}  // namespace

std::size_t table_entry(const Instruction& message, const Dependencies& dependencies) {
  const Link link = link_of(message);
  return table_entry(*dependencies.lane(link.from, link.to), link.gradient ? Direction::backward : Direction::forward);
}

ChannelMap::ChannelMap(const Schedule& schedule, const Dependencies& dependencies) {
  add_channels(schedule, dependencies);
  const auto m = static_cast<std::size_t>(schedule.micro_batches);
  std::vector<int> place(number_.size() * m);  // of each message among those of its channel
  for (const Order& order : schedule.orders)
    for (const Instruction& instruction : order) {
      if (!is_send(instruction.op())) continue;
      const std::size_t at = table_entry(instruction, dependencies);
      auto& messages = channels_[number_[at]].messages;
      place[at * m + instruction.micro_batch().index()] = static_cast<int>(messages.size());
      messages.push_back({instruction.stage(), instruction.peer(), instruction.micro_batch()});
    }
  for (const Order& order : schedule.orders)
    for (const Instruction& instruction : order) {
      if (!is_compute(instruction.op())) continue;
      dependencies.for_each_predecessor(instruction, [&](const Event& event) {
        if (!is_arrival(event)) return;
        const std::size_t at = table_entry_of(event, dependencies);
        Channel& channel = channels_[number_[at]];
        const int message = place[at * m + event.micro_batch.index()];
        const auto take = static_cast<int>(channel.takes.size());
        channel.takes.push_back(message);
        channel.messages[static_cast<std::size_t>(message)].take = take;
        channel.order_posts = std::max(channel.order_posts, message - take + 1);
      });
    }
}

void ChannelMap::add_channels(const Schedule& schedule, const Dependencies& dependencies) {
  number_.resize(2 * dependencies.lane_count());
  std::map<std::tuple<Rank, Rank, Direction>, std::vector<std::size_t>> entries_of;
  const bool forward_only = schedule.is_forward_only();
  for (std::size_t lane = 0; lane < dependencies.lane_count(); ++lane) {
    const Link& link = dependencies.link_of_lane(lane);
    const Rank from = schedule.rank_of(link.from);
    const Rank to = schedule.rank_of(link.to);
    entries_of[{from, to, Direction::forward}].push_back(table_entry(lane, Direction::forward));
    if (link.gradient && !forward_only)
      entries_of[{to, from, Direction::backward}].push_back(table_entry(lane, Direction::backward));
  }
  for (const auto& [key, entries] : entries_of) {
    for (const std::size_t entry : entries) number_[entry] = channels_.size();
    channels_.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key)});
  }
}

std::size_t ChannelMap::number(const Instruction& message, const Dependencies& dependencies) const {
  return number_[table_entry(message, dependencies)];
}

std::size_t ChannelMap::number(const Event& arrival, const Dependencies& dependencies) const {
  return number_[table_entry_of(arrival, dependencies)];
}

}  // namespace penstock
