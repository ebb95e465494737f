// Compares validate() with posts, channels_of() and least_posts() with a plain implementation of the model, on random
// schedules and on changes of them that keep them valid.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "penstock/schedule/channels_of.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/lower.h"
#include "penstock/schedule/text.h"
#include "penstock/schedule/validate.h"
#include "tests/schedule/plain_rendezvous.h"
#include "tests/schedule/random_schedule.h"

namespace penstock::channel_property_test {
namespace {

struct Working {
  Schedule schedule;
  Links links;
};

bool is_valid(const Working& working, std::optional<int> posts = {}) {
  return validate(working.schedule, {.links = working.links, .activation_bound = {}, .posts = posts}).ok;
}

/// A lowered schedule, random or generated, with skip links.
Working any_working() {
  if (*rc::gen::arbitrary<bool>()) {
    const int stages = *rc::gen::inRange(2, 7);
    const Links links = any_links(stages);
    return {lower(working_schedule(stages, links), links), links};
  }
  // looped-bfs, more often than others, fills its channels.
  const std::size_t number = *rc::gen::inRange<std::size_t>(0, 2 * generators().size());
  const ScheduleGenerator& generator =
      number < generators().size() ? generators()[number] : find_generator("looped-bfs");
  const ScheduleShape shape{.ranks = *rc::gen::inRange(2, 5),
                            .micro_batches = *rc::gen::inRange(1, 16),
                            .chunks = *rc::gen::inRange(generator.min_chunks, std::min(generator.max_chunks, 3) + 1)};
  const int stages = shape.ranks * shape.chunks;
  const Links links = *rc::gen::arbitrary<bool>() ? any_links(stages) : chain(stages);
  return {lower(generate(generator.name, shape), links), links};
}

/// Swaps neighbouring instructions in random places, as long as the schedule stays valid without a limit of posts. Most
/// of the swaps move a SEND or a RECV.
void permute(Working& working) {
  for (int n = *rc::gen::inRange(0, 30); n > 0; --n) {
    Order& order = working.schedule.orders[*rc::gen::inRange<std::size_t>(0, working.schedule.orders.size())];
    if (order.size() < 2) continue;
    const std::size_t k = *rc::gen::inRange<std::size_t>(1, order.size());
    std::swap(order[k - 1], order[k]);
    if (!is_valid(working)) std::swap(order[k - 1], order[k]);
  }
}

TEST(ChannelProperty, a_schedule_is_valid_with_the_posts_with_which_it_runs) {
  EXPECT_TRUE(rc::check("validate(x, posts) == run(x, posts)", [] {
    Working working = any_working();
    permute(working);
    const int posts = *rc::gen::inRange(1, 4);
    const Validation result =
        validate(working.schedule, {.links = working.links, .activation_bound = {}, .posts = posts});
    PlainRendezvous plain(working.schedule, working.links, posts);
    const bool works = plain.works();
    RC_CLASSIFY(works, "works");
    RC_LOG() << write_schedule(working.schedule) << posts << " posts: " << result.reason;
    RC_ASSERT(result.ok == works);
    if (works) return;
    RC_ASSERT(result.cell.has_value());
    RC_CLASSIFY(result.reason.starts_with("deadlock"), "deadlock");
    // In a deadlock the cell is the instruction at which its rank halts. A take that comes too early never runs.
    if (result.reason.starts_with("deadlock"))
      RC_ASSERT(plain.reached(result.cell->rank) == result.cell->position);
    else
      RC_ASSERT(plain.reached(result.cell->rank) <= result.cell->position);
  }));
}

TEST(ChannelProperty, least_posts_suffice_and_fewer_do_not) {
  EXPECT_TRUE(rc::check("least posts", [] {
    Working working = any_working();
    permute(working);
    const int least = least_posts(working.schedule, working.links);
    RC_CLASSIFY(least > 1, "several posts");
    RC_LOG() << write_schedule(working.schedule) << least;
    RC_ASSERT(PlainRendezvous(working.schedule, working.links, std::max(1, least)).works());
    RC_ASSERT(PlainRendezvous(working.schedule, working.links, least + 1).works());
    if (least > 1) RC_ASSERT(!PlainRendezvous(working.schedule, working.links, least - 1).works());
  }));
}

TEST(ChannelProperty, every_message_has_one_number_and_one_take) {
  EXPECT_TRUE(rc::check("channels", [] {
    Working working = any_working();
    permute(working);
    std::size_t messages = 0;
    for (const Channel& channel : channels_of(working.schedule, working.links)) {
      messages += channel.messages.size();
      const Order& sender = working.schedule.orders[channel.from.index()];
      const Order& receiver = working.schedule.orders[channel.to.index()];
      auto last = sender.begin();
      int order_posts = 0;
      for (std::size_t k = 0; k < channel.messages.size(); ++k) {
        const ChannelMessage& message = channel.messages[k];
        const auto sent = std::find(sender.begin(), sender.end(), channel.send(message));
        RC_ASSERT(sent >= last);
        RC_ASSERT(sent != sender.end());
        last = sent;
        RC_ASSERT(std::count(receiver.begin(), receiver.end(), channel.receive(message)) == 1);
        RC_ASSERT(channel.takes[static_cast<std::size_t>(message.take)] == static_cast<int>(k));
        order_posts = std::max(order_posts, static_cast<int>(k) - message.take + 1);
      }
      RC_ASSERT(channel.takes.size() == channel.messages.size());
      RC_ASSERT(channel.order_posts == order_posts);
    }
    std::size_t sends = 0;
    for (const Order& order : working.schedule.orders)
      sends += static_cast<std::size_t>(std::count_if(
          order.begin(), order.end(), [](const Instruction& instruction) { return is_send(instruction.op()); }));
    RC_ASSERT(messages == sends);
  }));
}

TEST(ChannelProperty, swapped_sends_are_received_in_the_new_order) {
  EXPECT_TRUE(rc::check("swap two sends", [] {
    // The sends follow all compute instructions of their direction, so that each order of them is possible.
    const int m = *rc::gen::inRange(2, 6);
    Schedule schedule = lower(generate("gpipe", {.ranks = 2, .micro_batches = m}));
    Order& order = schedule.orders[0];
    std::stable_partition(order.begin(), order.end(),
                          [](const Instruction& instruction) { return instruction.op() == Op::forward; });
    const auto first = static_cast<std::size_t>(m);  // 0F0 .. 0Fm-1, then the sends
    const std::size_t a = *rc::gen::inRange<std::size_t>(0, first);
    const std::size_t b = *rc::gen::inRange<std::size_t>(0, first);
    std::swap(order[first + a], order[first + b]);
    const Channel channel = channels_of(schedule).front();
    for (std::size_t k = 0; k < first; ++k) RC_ASSERT(channel.send(channel.messages[k]) == order[first + k]);
    // Rank 1 takes the messages in ascending order; the later one of the two is sent first.
    const int distance = std::abs(static_cast<int>(a) - static_cast<int>(b));
    RC_ASSERT(channel.order_posts == distance + 1);
    RC_ASSERT(least_posts(schedule) == distance + 1);
  }));
}

}  // namespace
}  // namespace penstock::channel_property_test
