// Whether a schedule runs to its end with a bounded number of posts per channel, as channel.h defines it, and a
// description of the deadlock if it does not. Inside this module only.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "penstock/schedule/channel.h"
#include "penstock/schedule/dependencies.h"
#include "penstock/schedule/replay.h"
#include "penstock/schedule/violation.h"

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
  /// The number in channels() for a table_entry().
  std::size_t number_of(std::size_t entry, MicroBatch i) const {
    const auto pipeline = pipeline_of_.empty() ? 0 : static_cast<std::size_t>(pipeline_of_[i.index()]);
    return number_[pipeline * entries_ + entry];
  }

  std::vector<Channel> channels_;
  std::size_t entries_ = 0;          // of a pipeline
  std::vector<std::size_t> number_;  // by pipeline, then table_entry()
  std::vector<int> pipeline_of_;     // by micro-batch; empty if there is one pipeline
};

/// How ranks wait in the replay that came to a halt.
struct Waiting {
  std::string title = "deadlock";
  /// The next instruction that must run before an event happens; none if no instruction causes it.
  std::function<std::optional<GridCell>(std::size_t event)> obstacle;
  /// The text of an instruction that waits.
  std::function<std::string(const Instruction&)> text = [](const Instruction& waits) { return to_string(waits); };
};

/// Follows the ranks that wait for each other until a rank is reached for the second time. That cycle is the deadlock,
/// and the cell of the result is on it. `progress` has not finished.
Violation deadlock(const Schedule& schedule, const Reach& progress, const Waiting& waiting);

/// The first instruction for which `applies(instruction)` is true; none if there is none.
template <class Applies>
std::optional<GridCell> find_instruction(const Schedule& schedule, Applies&& applies) {
  for (std::size_t rank = 0; rank < schedule.orders.size(); ++rank)
    for (std::size_t k = 0; k < schedule.orders[rank].size(); ++k)
      if (applies(schedule.orders[rank][k]))
        return GridCell{Rank(static_cast<std::int32_t>(rank)), static_cast<int>(k)};
  return std::nullopt;
}

/// The instruction that produces `event`.
inline std::optional<GridCell> find_producer(const Schedule& schedule, const Dependencies& dependencies,
                                             std::size_t event) {
  return find_instruction(schedule, [&](const Instruction& instruction) {
    bool gives = false;
    dependencies.for_each_given(instruction,
                                [&](const Event& given) { gives = gives || dependencies.index(given) == event; });
    return gives;
  });
}

/// Replays `schedule`, which validate() accepts without posts, with at least Channel::order_posts posts. An instruction
/// that halts for a message misses the event of its SEND; a SEND that halts misses the arrival of the message whose
/// take makes room for it. Linear time.
Reach replay_with_posts(const Schedule& schedule, const Dependencies& dependencies, const ChannelMap& map, int posts);

/// The first violation of `schedule`, which validate() accepts without posts, with `posts` posts per channel. A
/// violation, too, is a number below 1, or a schedule that is not lowered although stages of different ranks are
/// linked.
std::optional<Violation> find_lack_of_posts(const Schedule& schedule, const Dependencies& dependencies, int posts);

}  // namespace penstock
