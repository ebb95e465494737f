#include "tests/support/fault_injection.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"

namespace penstock::fault_injection_test {
namespace {

using namespace std::chrono_literals;

Tag tag_of(int number) { return {.micro_batch = number}; }
Message message_of(int number) { return {{{torch::full({1}, number), false}}}; }

/// Rank 0 sends through the plan, rank 1 receives.
struct Pair {
  explicit Pair(const FaultPlan& plan, std::chrono::milliseconds stall_limit = 60s) {
    auto endpoints = open_threads(2, {.stall_limit = stall_limit});
    sender = with_faults(std::move(endpoints[0]), plan);
    receiver = std::move(endpoints[1]);
  }
  void send(int number) { sender->send(WorldRank(1), tag_of(number), message_of(number)); }
  int receive(int number) {
    return receiver->receive(WorldRank(0), tag_of(number), "1RECV").payloads.at(0).tensor.item<int>();
  }
  std::unique_ptr<Transport> sender, receiver;
};

TEST(FaultInjection, drops_the_nth_message) {
  Pair pair({.drop = {2}}, 40ms);
  for (int i = 1; i <= 3; ++i) pair.send(i);
  EXPECT_EQ(pair.receive(1), 1);
  EXPECT_EQ(pair.receive(3), 3);
  EXPECT_THROW(pair.receive(2), TransportError);
}

FaultPlan delayed(int later_sends, std::chrono::milliseconds at_most) {
  return {.delay_odd = FaultPlan::Delay{later_sends, at_most}};
}

TEST(FaultInjection, delays_a_message_until_later_ones_were_sent) {
  Pair pair(delayed(3, 1h));
  for (int i = 1; i <= 4; ++i) pair.send(i);
  const auto sent_ns = [&](int number) {
    return pair.receiver->receive(WorldRank(0), tag_of(number), "1RECV").sent_ns;
  };
  const auto first = sent_ns(1);
  EXPECT_GT(first, sent_ns(2));
  EXPECT_GT(first, sent_ns(4));
}

TEST(FaultInjection, sends_a_delayed_message_when_its_time_is_up) {
  Pair pair(delayed(100, 5ms));
  pair.send(1);
  EXPECT_EQ(pair.receive(1), 1);
}

TEST(FaultInjection, sends_all_delayed_messages_at_its_end) {
  Pair pair(delayed(100, 1h));
  pair.send(1);
  pair.sender.reset();
  EXPECT_EQ(pair.receive(1), 1);
}

TEST(FaultInjection, abort_passes_through) {
  Pair pair(delayed(9, 1h));
  pair.send(1);
  pair.sender->abort("enough");
  EXPECT_EQ(pair.receiver->aborted(), "enough");
  EXPECT_EQ(pair.sender->aborted(), "enough");
}

}  // namespace
}  // namespace penstock::fault_injection_test
