// What a rank that is a process sends, on a network that keeps it.
#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/transport/control_messages.h"
#include "penstock/transport/progress_thread.h"
#include "penstock/transport/wire.h"
#include "penstock/transport/world_aborted.h"

namespace penstock::test::progress_thread_test {
namespace {

/// The network of rank 0 of two, whose sends go nowhere, and to which nothing comes but what the test gives it.
class TestNetwork final : public BufferNetwork {
 public:
  /// `early` arrive while the network is being made known to its user.
  explicit TestNetwork(std::vector<Arrival> early = {}) : early_(std::move(early)) {}

  std::string name() const override { return "test"; }
  WorldRank rank() const override { return WorldRank(0); }
  const std::vector<ProcessPlace>& places() const override { return places_; }
  std::mutex& calls() override { return calls_; }
  bool must_be_polled() const override { return false; }
  void notify(std::function<void()> has_news) override { std::thread(has_news).join(); }
  void watch_exit(std::function<void()>) override {}
  void begin_send(WorldRank, int kind, WireBuffer) override {
    const std::lock_guard lock(mutex_);
    kinds_.push_back(kind);
    changed_.notify_all();
  }
  bool advance(std::vector<Arrival>& arrived) override {
    arrived = std::exchange(early_, {});
    return !arrived.empty();
  }
  std::vector<Transfer> transfers() const override { return {}; }
  std::optional<Break> take_break() override { return std::nullopt; }
  void begin_barrier() override {}
  bool is_barrier_done() override { return true; }
  void close() override {}
  void abandon() noexcept override {}

  /// The kinds of the first `count` buffers, once they are sent.
  std::vector<int> first_kinds(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return kinds_.size() >= count; });
    return {kinds_.begin(), kinds_.begin() + static_cast<std::ptrdiff_t>(count)};
  }

 private:
  // On two hosts: no process is looked after.
  const std::vector<ProcessPlace> places_{{.host = 1}, {.host = 2}};
  std::mutex calls_, mutex_;
  std::condition_variable changed_;
  std::vector<int> kinds_;      // guarded by mutex_
  std::vector<Arrival> early_;  // guarded by calls_
};

TEST(ProgressThread, sends_a_cancellation_before_the_messages_that_follow_it) {
  // Both wait for one polling round, because the network is in use. A message that came before the cancellation of its
  // step would be received.
  auto network = std::make_unique<TestNetwork>();
  TestNetwork& sends = *network;
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
  auto network = std::make_unique<TestNetwork>();
  TestNetwork& sends = *network;
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
  ProgressThread thread(std::make_unique<TestNetwork>(std::move(early)), {});
  thread.mailbox().take(WorldRank(1), tag, "1RECV_F0", thread);
  Tag cancelled = tag;
  cancelled.step = 2;
  EXPECT_THROW(thread.mailbox().take(WorldRank(1), cancelled, "1RECV_F0", thread), StepCancelled);
}

}  // namespace
}  // namespace penstock::test::progress_thread_test
