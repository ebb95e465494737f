#include "penstock/schedule/channels_of.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "penstock/base/error.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/lower.h"
#include "penstock/schedule/text.h"
#include "penstock/schedule/validate.h"
#include "tests/schedule/plain_rendezvous.h"
#include "tests/support/sanitized.h"

namespace penstock::channels_of_test {
namespace {

/// Two stages on each of two ranks; rank 1 needs the messages of rank 0 in another order than they are sent: the
/// example in channel.h.
Schedule crossed() {
  return read_schedule(
      "penstock schedule 1\nname\nranks 2\nstages 4\nmicro_batches 1\nrank_of_stage 0 0 1 1\n"
      "rank 0: 0F0 0SEND_F0>2 1F0 1SEND_F0>3\n"
      "rank 1: 3RECV_F0<1 3F0 2RECV_F0<0 2F0\n");
}

const Links crossed_links = {{StageId(0), StageId(2)}, {StageId(1), StageId(3)}};

TEST(Channels, are_in_the_order_of_the_sender) {
  const std::vector<Channel> channels = channels_of(crossed(), crossed_links);
  ASSERT_EQ(channels.size(), 1u);
  const Channel& channel = channels.front();
  EXPECT_EQ(to_string(channel), "the forward channel of ranks 0>1");
  ASSERT_EQ(channel.messages.size(), 2u);
  EXPECT_EQ(to_string(channel.send(channel.messages[0])), "0SEND_F0>2");
  EXPECT_EQ(to_string(channel.receive(channel.messages[0])), "2RECV_F0<0");
  EXPECT_EQ(to_string(channel.send(channel.messages[1])), "1SEND_F0>3");
  EXPECT_EQ(channel.messages[0].take, 1);
  EXPECT_EQ(channel.messages[1].take, 0);
  EXPECT_EQ(channel.takes, (std::vector<int>{1, 0}));
  EXPECT_EQ(channel.order_posts, 2);
  EXPECT_EQ(least_posts(crossed(), crossed_links), 2);
}

std::string listed(const std::vector<Channel>& channels) {
  std::string text;
  for (const Channel& channel : channels) {
    text += to_string(channel) + ":";
    for (const ChannelMessage& message : channel.messages) text += " " + to_string(channel.send(message));
    text += "\n";
  }
  return text;
}

TEST(Channels, of_a_pair_of_ranks_carry_all_links_between_them) {
  EXPECT_EQ(listed(channels_of(lower(generate("interleaved", {.ranks = 2, .micro_batches = 2, .chunks = 2})))),
            "the forward channel of ranks 0>1: 0SEND_F0 0SEND_F1 2SEND_F0 2SEND_F1\n"
            "the backward channel of ranks 0>1: 2SEND_B0 2SEND_B1\n"
            "the forward channel of ranks 1>0: 1SEND_F0 1SEND_F1\n"
            "the backward channel of ranks 1>0: 3SEND_B0 3SEND_B1 1SEND_B0 1SEND_B1\n");
}

TEST(Channels, carry_gradients_only_of_links_that_have_them) {
  const Links links = {{StageId(0), StageId(1)}, {StageId(0), StageId(2)}, {StageId(1), StageId(2), false}};
  EXPECT_EQ(listed(channels_of(lower(generate("1f1b", {.ranks = 3, .micro_batches = 1}), links), links)),
            "the forward channel of ranks 0>1: 0SEND_F0\n"
            "the forward channel of ranks 0>2: 0SEND_F0>2\n"
            "the backward channel of ranks 1>0: 1SEND_B0\n"
            "the forward channel of ranks 1>2: 1SEND_F0\n"
            "the backward channel of ranks 2>0: 2SEND_B0>0\n");
}

TEST(Channels, are_only_in_lowered_valid_schedules) {
  const Schedule plain = generate("1f1b", {.ranks = 2, .micro_batches = 2});
  EXPECT_THROW(channels_of(plain), ScheduleError);
  EXPECT_THROW(least_posts(plain), ScheduleError);
  Schedule broken = lower(plain);
  broken.orders[0].pop_back();
  broken.orders[0].pop_back();
  EXPECT_THROW(channels_of(broken), ScheduleError);
  EXPECT_THROW(least_posts(broken), ScheduleError);
  EXPECT_EQ(channels_of(generate("1f1b", {.ranks = 1, .micro_batches = 2})), std::vector<Channel>{});
  EXPECT_EQ(least_posts(generate("1f1b", {.ranks = 1, .micro_batches = 2})), 0);
}

TEST(LeastPosts, a_rank_that_sends_everything_first_fills_the_channels) {
  // Each channel accepts two messages ahead of the takes. Rank 0 takes none before its last F of stage 0, so rank 1
  // halts at 1SEND_F2, and 0SEND_F5 finds two messages before it that rank 1 has not taken:
  //
  //   rank 0: 0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2 0F3 0SEND_F3 0F4 0SEND_F4 0F5 (0SEND_F5) 2RECV_F0 2F0 ...
  //   rank 1: 1F0 1SEND_F0 1F1 1SEND_F1 1F2 (1SEND_F2) 1RECV_F3 1F3 ...
  const Schedule schedule = lower(generate("looped-bfs", {.ranks = 2, .micro_batches = 6, .chunks = 2}));
  EXPECT_EQ(least_posts(schedule), 2);
  EXPECT_EQ(least_posts(lower(generate("looped-bfs", {.ranks = 2, .micro_batches = 5, .chunks = 2}))), 1);
}

/// The least posts of a generator's schedule. looped-bfs: rank 0 sends m messages before it takes one; then p channels
/// have accepted 2n each, and p - 1 ranks have one that they cannot pass on. Interleaved groups of unequal size and
/// several waves are sent and taken in different orders. All others need one post.
void expect_posts(int least, const ScheduleGenerator& generator, const ScheduleShape& shape) {
  const int p = shape.ranks;
  if (p == 1) {
    EXPECT_EQ(least, 0);
  } else if (generator.name == "looped-bfs") {
    EXPECT_EQ(least, std::max(1, (shape.micro_batches - (p - 1) + 2 * p - 1) / (2 * p)));
  } else if (generator.name == "interleaved" && shape.micro_batches % p != 0) {
    EXPECT_GE(least, 1);
    EXPECT_LE(least, (p + 1) / 2);
  } else if (generator.name == "hanayo" && shape.chunks > 2) {
    EXPECT_GE(least, 1);
    EXPECT_LE(least, 3);
  } else {
    EXPECT_EQ(least, 1);
  }
}

/// Expects that `least` posts suffice, and no fewer, in the library and in the plain implementation.
void expect_least(const Schedule& schedule, const Links& links, int least) {
  if (least == 0) {
    EXPECT_TRUE(channels_of(schedule, links).empty());
    return;
  }
  EXPECT_EQ(validate(schedule, {.links = links, .activation_bound = {}, .posts = least}).reason, "");
  EXPECT_TRUE(PlainRendezvous(schedule, links, least).works());
  if (least == 1) return;
  EXPECT_FALSE(validate(schedule, {.links = links, .activation_bound = {}, .posts = least - 1}).ok);
  EXPECT_FALSE(PlainRendezvous(schedule, links, least - 1).works());
}

/// The links between neighbours, and those from each stage to the next but one and to the last.
Links skipping(int stages) {
  Links links = chain(stages);
  for (int from = 0; from + 2 < stages; ++from) {
    links.push_back({StageId(from), StageId(from + 2)});
    if (from + 3 < stages) links.push_back({StageId(from), StageId(stages - 1)});
  }
  return links;
}

TEST(LeastPosts, of_every_generator_with_and_without_skip_links) {
  for (const ScheduleGenerator& generator : generators())
    for (int v = generator.min_chunks; v <= std::min(generator.max_chunks, 3); ++v)
      for (int p = 1; p <= 6; p += loop_step)
        for (int m = 1; m <= 12; m += loop_step) {
          SCOPED_TRACE(say(generator.name, " p ", p, " m ", m, " v ", v));
          const ScheduleShape shape{.ranks = p, .micro_batches = m, .chunks = v};
          const Schedule schedule = generate(generator.name, shape);
          const int least = least_posts(lower(schedule));
          expect_posts(least, generator, shape);
          expect_least(lower(schedule), chain(p * v), least);
          const Links skips = skipping(p * v);
          const Schedule with_skips = lower(schedule, skips);
          expect_least(with_skips, skips, least_posts(with_skips, skips));
          if (HasFailure()) return;
        }
}

}  // namespace
}  // namespace penstock::channels_of_test
