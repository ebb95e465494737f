#include "penstock/schedule/receive_buffers.h"

#include <functional>
#include <queue>

#include "penstock/base/error.h"
#include "penstock/schedule/channel_map.h"
#include "penstock/schedule/channels_of.h"
#include "penstock/schedule/replay.h"

namespace penstock {
namespace {

/// The buffers of one link in one direction while a rank's list is followed.
class BufferPool {
 public:
  void occupy(MicroBatch message) {
    if (buffer_of_.size() <= message.index()) buffer_of_.resize(message.index() + 1);
    if (free_.empty()) free_.push(count_++);
    buffer_of_[message.index()] = free_.top();
    free_.pop();
  }
  void release(MicroBatch message) { free_.push(buffer_of_[message.index()]); }

  int count() const { return count_; }
  const std::vector<int>& buffer_of() const { return buffer_of_; }

 private:
  std::priority_queue<int, std::vector<int>, std::greater<>> free_;
  std::vector<int> buffer_of_;
  int count_ = 0;
};

/// Calls `visit(table entry)` for the messages of each micro-batch that `instruction` is the last to read.
template <class Visit>
void for_each_read(const Instruction& instruction, const Dependencies& dependencies, Visit&& visit) {
  for (const Link& link : dependencies.incoming(instruction.stage()))
    if (const auto lane = dependencies.lane(link.from, link.to)) visit(table_entry(*lane, Direction::forward));
  if (instruction.op() == Op::forward) return;
  for (const Link& link : dependencies.outgoing(instruction.stage()))
    if (const auto lane = dependencies.lane(link.from, link.to); lane && link.gradient)
      visit(table_entry(*lane, Direction::backward));
}

std::vector<BufferPool> follow_lists(const Schedule& schedule, const Dependencies& dependencies, int posts) {
  const ChannelMap map(schedule, dependencies);
  std::vector<BufferPool> pools(2 * dependencies.lane_count());
  const auto post = [&](const Channel& channel, std::size_t message) {
    if (message >= channel.messages.size()) return;
    const Instruction receive = channel.receive(channel.messages[message]);
    pools[table_entry(receive, dependencies)].occupy(receive.micro_batch());
  };
  const auto ahead = static_cast<std::size_t>(posts);
  for (const Channel& channel : map.channels()) {
    require<ScheduleError>(channel.order_posts <= posts, "posts = ", posts, ": ", to_string(channel),
                           " needs at least ", channel.order_posts);
    for (std::size_t message = 0; message < ahead; ++message) post(channel, message);
  }

  const bool forward_only = schedule.is_forward_only();
  std::vector<std::size_t> takes(map.channels().size(), 0);
  for (const Order& order : schedule.orders)
    for (const Instruction& instruction : order) {
      if (!is_compute(instruction.op())) continue;
      dependencies.for_each_predecessor(instruction, [&](const Event& event) {
        if (!is_arrival(event)) return;
        const std::size_t number = map.number(event, dependencies);
        post(map.channels()[number], takes[number]++ + ahead);
      });
      const bool reads_last = instruction.op() == Op::backward || instruction.op() == Op::weight_grad || forward_only;
      if (!reads_last) continue;
      for (MicroBatch i = instruction.first(); i <= instruction.last(); i = i.next())
        for_each_read(instruction, dependencies, [&](std::size_t entry) { pools[entry].release(i); });
    }
  return pools;
}

}  // namespace

std::vector<LinkBuffers> assign_buffers(const Schedule& schedule, int posts, const std::optional<Links>& links) {
  const Dependencies dependencies = dependencies_of_messages(schedule, links);
  const std::vector<BufferPool> pools = follow_lists(schedule, dependencies, posts);
  std::vector<LinkBuffers> buffers;
  for (std::size_t lane = 0; lane < dependencies.lane_count(); ++lane)
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const BufferPool& pool = pools[table_entry(lane, direction)];
      if (pool.count() == 0) continue;
      buffers.push_back({dependencies.link_of_lane(lane), direction, pool.count(), pool.buffer_of()});
    }
  return buffers;
}

}  // namespace penstock
