// The channels of a schedule, and the channel of each link. Inside this module only.
#pragma once

#include <cstddef>
#include <vector>

#include "penstock/schedule/channel.h"
#include "penstock/schedule/dependencies.h"

namespace penstock {

/// The place of a link and a direction in a table with two entries per lane.
constexpr std::size_t table_entry(std::size_t lane, Direction direction) {
  return 2 * lane + static_cast<std::size_t>(direction);
}
/// The same for the message of a SEND or RECV of a complete schedule.
std::size_t table_entry(const Instruction& message, const Dependencies& dependencies);

/// Immutable.
class ChannelMap {
 public:
  /// `schedule` must be lowered, and complete with `dependencies` (find_incomplete).
  ChannelMap(const Schedule& schedule, const Dependencies& dependencies);

  const std::vector<Channel>& channels() const { return channels_; }
  /// The number in channels() of the channel of a SEND or RECV.
  std::size_t number(const Instruction& message, const Dependencies& dependencies) const;
  /// The same for a predecessor that is_arrival().
  std::size_t number(const Event& arrival, const Dependencies& dependencies) const;

 private:
  void add_channels(const Schedule& schedule, const Dependencies& dependencies);

  std::vector<Channel> channels_;
  std::vector<std::size_t> number_;  // by table_entry()
};

}  // namespace penstock
