#include "penstock/schedule/receive_buffers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "penstock/base/error.h"
#include "penstock/schedule/channels_of.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/lower.h"
#include "penstock/schedule/text.h"
#include "penstock/schedule/validate.h"
#include "tests/schedule/random_schedule.h"

namespace penstock::receive_buffers_test {
namespace {

std::string listed(const std::vector<LinkBuffers>& buffers) {
  std::string text;
  for (const LinkBuffers& of : buffers) {
    text += say(to_string(of.link), " ", to_string(of.direction), ", ", of.count, ":");
    for (const int buffer : of.buffer_of) text += say(" ", buffer);
    text += "\n";
  }
  return text;
}

TEST(ReceiveBuffers, are_used_again_after_the_backward_of_their_micro_batch) {
  // rank 1: 1F0 1B0 1F1 1B1 1F2 1B2. With one post, the receive of micro-batch 1 is posted when 1F0 has its message.
  const Schedule schedule = lower(generate("1f1b", {.ranks = 2, .micro_batches = 3}));
  EXPECT_EQ(listed(assign_buffers(schedule, 1)),
            "0>1 forward, 2: 0 1 0\n"
            "0>1 backward, 2: 0 1 0\n");
  EXPECT_EQ(listed(assign_buffers(schedule, 2)),
            "0>1 forward, 3: 0 1 2\n"
            "0>1 backward, 3: 0 1 2\n");
}

TEST(ReceiveBuffers, are_needed_until_W_if_B_is_split) {
  const Schedule split =
      lower(read_schedule("penstock schedule 1\nname\nranks 2\nstages 2\nmicro_batches 3\nrank_of_stage 0 1\n"
                          "rank 0: 0F0 0I0 0F1 0I1 0F2 0I2 0W0-2\nrank 1: 1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2\n"));
  EXPECT_EQ(listed(assign_buffers(split, 1)),
            "0>1 forward, 3: 0 1 2\n"
            "0>1 backward, 3: 0 1 2\n");
}

TEST(ReceiveBuffers, of_evaluation_are_free_after_F) {
  EXPECT_EQ(listed(assign_buffers(lower(generate("forward-only", {.ranks = 2, .micro_batches = 4})), 1)),
            "0>1 forward, 2: 0 1 0 1\n");
}

TEST(ReceiveBuffers, links_have_their_own) {
  const Links links = {{StageId(0), StageId(1)}, {StageId(0), StageId(2)}, {StageId(1), StageId(2), false}};
  EXPECT_EQ(listed(assign_buffers(lower(generate("1f1b", {.ranks = 3, .micro_batches = 2}), links), 1, links)),
            "0>1 forward, 2: 0 1\n"
            "0>1 backward, 2: 0 1\n"
            "0>2 forward, 2: 0 1\n"
            "0>2 backward, 2: 0 1\n"
            "1>2 forward, 2: 0 1\n");
}

TEST(ReceiveBuffers, of_1f1b_are_its_live_micro_batches_and_the_posts) {
  for (int p = 2; p <= 6; ++p)
    for (int m = 1; m <= 12; ++m)
      for (int posts = 1; posts <= 3; ++posts)
        for (const LinkBuffers& of : assign_buffers(lower(generate("1f1b", {.ranks = p, .micro_batches = m})), posts)) {
          // Stage s holds p - s micro-batches at most, the one that F has just taken included; B takes and frees one.
          const int live = of.direction == Direction::forward ? p - of.link.to.value() : 1;
          EXPECT_EQ(of.count, std::min(m, live + posts)) << say("p ", p, " m ", m, " ", to_string(of.link));
        }
}

TEST(ReceiveBuffers, need_posts_for_the_order_of_the_receiver) {
  const Schedule crossed = read_schedule(
      "penstock schedule 1\nname\nranks 2\nstages 4\nmicro_batches 1\nrank_of_stage 0 0 1 1\n"
      "rank 0: 0F0 0SEND_F0>2 1F0 1SEND_F0>3\n"
      "rank 1: 3RECV_F0<1 3F0 2RECV_F0<0 2F0\n");
  const Links links = {{StageId(0), StageId(2)}, {StageId(1), StageId(3)}};
  EXPECT_EQ(listed(assign_buffers(crossed, 2, links)), "0>2 forward, 1: 0\n1>3 forward, 1: 0\n");
  EXPECT_THROW(assign_buffers(crossed, 1, links), ScheduleError);
  EXPECT_THROW(assign_buffers(generate("1f1b", {.ranks = 2, .micro_batches = 2}), 1), ScheduleError);
}

/// The buffers of one link in one direction while its receiver executes.
struct Used {
  std::set<int> occupied;
  std::size_t peak = 0;

  void occupy(int buffer) {
    RC_ASSERT(occupied.insert(buffer).second);
    for (int lower = 0; lower < buffer; ++lower) RC_ASSERT(occupied.contains(lower));
    peak = std::max(peak, occupied.size());
  }
  void release(int buffer) { RC_ASSERT(occupied.erase(buffer) == 1); }
};

TEST(ReceiveBuffers, hold_one_live_message_each_and_are_as_few_as_possible) {
  EXPECT_TRUE(rc::check("execute with buffers", [] {
    const int stages = *rc::gen::inRange(2, 7);
    const Links links = any_links(stages);
    const Schedule schedule = lower(working_schedule(stages, links), links);
    const int posts = std::max(1, least_posts(schedule, links)) + *rc::gen::inRange(0, 3);
    const std::vector<Channel> channels = channels_of(schedule, links);
    RC_LOG() << write_schedule(schedule) << posts << " posts";

    std::map<std::tuple<StageId, StageId, Direction>, std::pair<LinkBuffers, Used>> of;
    for (const LinkBuffers& buffers : assign_buffers(schedule, posts, links))
      of[{buffers.link.from, buffers.link.to, buffers.direction}] = {buffers, {}};
    const auto post = [&](const Channel& channel, std::size_t number) {
      if (number >= channel.messages.size()) return;
      const ChannelMessage& message = channel.messages[number];
      const bool forward = channel.direction == Direction::forward;
      auto& [buffers, used] =
          of.at({forward ? message.from : message.to, forward ? message.to : message.from, channel.direction});
      used.occupy(buffers.buffer_of[message.micro_batch.index()]);
    };
    // The takes of each rank in the order of its list: an instruction takes the messages of its stage and micro-batch.
    std::map<std::size_t, std::size_t> taken;
    for (std::size_t number = 0; number < channels.size(); ++number)
      for (std::size_t k = 0; k < static_cast<std::size_t>(posts); ++k) post(channels[number], k);
    const auto take = [&](const Instruction& instruction, Direction direction) {
      for (std::size_t number = 0; number < channels.size(); ++number)
        while (channels[number].direction == direction && taken[number] < channels[number].takes.size()) {
          const Channel& channel = channels[number];
          const auto& next = channel.messages[static_cast<std::size_t>(channel.takes[taken[number]])];
          if (next.to != instruction.stage() || next.micro_batch != instruction.micro_batch()) break;
          post(channel, taken[number]++ + static_cast<std::size_t>(posts));
        }
    };
    for (const Order& order : schedule.orders)
      for (const Instruction& instruction : order) {
        const Op op = instruction.op();
        if (op == Op::forward) take(instruction, Direction::forward);
        if (op == Op::backward || op == Op::input_grad) take(instruction, Direction::backward);
        if (op != Op::backward && op != Op::weight_grad) continue;
        for (auto& [key, entry] : of) {
          const auto& [from, to, direction] = key;
          if ((direction == Direction::forward ? to : from) != instruction.stage()) continue;
          for (MicroBatch i = instruction.first(); i <= instruction.last(); i = i.next())
            entry.second.release(entry.first.buffer_of[i.index()]);
        }
      }
    for (const auto& [key, entry] : of) {
      RC_ASSERT(entry.second.occupied.empty());
      RC_ASSERT(entry.first.count == static_cast<int>(entry.second.peak));
    }
  }));
}

}  // namespace
}  // namespace penstock::receive_buffers_test
