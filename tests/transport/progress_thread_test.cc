// What a rank that is a process sends, on a network that keeps it.
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/transport/processes/control_messages.h"
#include "penstock/transport/processes/progress_thread.h"
#include "penstock/transport/processes/wire.h"
#include "tests/transport/silent_network.h"

namespace penstock::test::progress_thread_test {
using namespace processes;
namespace {

TEST(ProgressThread, sends_a_cancellation_before_the_messages_that_follow_it) {
  // Both wait for one polling round, because the network is in use. A message that came before the cancellation of its
  // step would be received.
  auto network = std::make_unique<SilentNetwork>();
  SilentNetwork& sends = *network;
  ProgressThread thread(std::move(network), {});
  {
    const std::lock_guard in_use(sends.calls());
    std::thread([&] {
      thread.cancel({0, 0}, "the input is too wide");
      thread.send(WorldRank(1), {.traffic = Traffic::forward}, Message{});
    }).join();
  }
  EXPECT_EQ(sends.first_kinds(2), (std::vector<int>{control_messages::kind_cancel, control_messages::kind_message}));
}

TEST(ProgressThread, describes_a_format_before_its_first_message) {
  auto network = std::make_unique<SilentNetwork>();
  SilentNetwork& sends = *network;
  ProgressThread thread(std::move(network), {});
  for (int i = 0; i < 2; ++i)
    thread.send(WorldRank(1), {.traffic = Traffic::forward, .micro_batch = i}, {{{torch::ones({2}), true}}});
  using namespace control_messages;
  EXPECT_EQ(sends.first_kinds(3), (std::vector<int>{kind_format, kind_message, kind_message}));
  EXPECT_EQ(thread.message_costs().sent, 2U);
  EXPECT_EQ(thread.message_costs().described, 1U);
}

TEST(ProgressThread, receives_what_comes_before_it_is_complete) {
  // Another process that has opened the world sends at once.
  const Tag tag{.traffic = Traffic::forward, .step = 3};
  std::vector<BufferNetwork::Arrival> early;
  early.push_back({WorldRank(1), control_messages::kind_cancel,
                   control_messages::buffer_of(StepKey{0, 2}, "the input is too wide")});
  early.push_back({WorldRank(1), control_messages::kind_message, encode(tag, Message{})});
  ProgressThread thread(std::make_unique<SilentNetwork>(std::move(early)), {});
  thread.mailbox().take(WorldRank(1), tag, "1RECV_F0", thread);
  Tag cancelled = tag;
  cancelled.step = 2;
  EXPECT_THROW(thread.mailbox().take(WorldRank(1), cancelled, "1RECV_F0", thread), StepCancelled);
}

}  // namespace
}  // namespace penstock::test::progress_thread_test
