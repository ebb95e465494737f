// Waits of the host for its device, which may wait for other ranks: they watch these, and end where a plain wait would
// not.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "penstock/penstock.h"
#include "penstock/transport/device_channels.h"
#include "penstock/transport/device_hand_over.h"
#include "penstock/transport/process_endpoint.h"
#include "penstock/transport/static_steps.h"
#include "penstock/world/rank_device.h"
#include "tests/devices/joined_here.h"
#include "tests/devices/static_pair.h"
#include "tests/support/stream_groups.h"
#include "tests/support/test_device.h"
#include "tests/transport/silent_network.h"

namespace penstock::test::device_waits_test {
namespace {

using DeviceWaits = StaticPair;

/// The text of the failure of a wait for the device of `rank`; empty where it ends well.
std::string failure_of_wait(Transport& rank, const c10::Stream& stream) {
  try {
    rank.await_stream(stream, "the loss");
  } catch (const TransportError& error) {
    return error.what();
  }
  return "";
}

TEST_F(DeviceWaits, last_as_long_as_the_device_works) {
  std::optional<HeldStream> working(stream_of(1));
  both([&](int rank) {
    if (rank == 1) return ranks_[1]->await_stream(stream_of(1), "the loss");
    working->wait_for_a_waiter();
    working.reset();
  });
}

TEST_F(DeviceWaits, end_with_the_world) {
  std::optional<HeldStream> stopped(stream_of(1));
  both([&](int rank) {
    if (rank == 0) {
      stopped->wait_for_a_waiter();
      return ranks_[0]->abort("rank 0 has stopped");
    }
    EXPECT_EQ(failure_of_wait(*ranks_[1], stream_of(1)),
              "rank 1 gave up waiting for the loss on its device, behind messages: rank 0 has stopped");
    stopped.reset();
    EXPECT_NE(failure_of_wait(*ranks_[1], stream_of(1)), "") << "the device may have gone on because of the abort";
  });
}

TEST_F(DeviceWaits, end_once_a_rank_has_left_without_sending) {
  close(std::move(ranks_));
  ranks_ = open_here(2, stream_groups(Unmet::holds_stream));
  connect();
  step_of(0, 1);
  std::future<void> leaves;
  both([&](int rank) {
    begin(rank, 1);
    if (rank == 0) {
      leaves = std::async(std::launch::async, [&] { ranks_[0].reset(); });
      return;
    }
    ranks_[1]->receive(WorldRank(0), value(1, 0), "1RECV_F0");
    EXPECT_EQ(failure_of_wait(*ranks_[1], stream_of(1)),
              "rank 1 waits for the loss on its device, behind messages from rank 0, which has left the world, and "
              "sends nothing any more");
    ranks_[1]->abort("the end of the test");
  });
  leaves.get();
}

TEST(SilentRank, is_named_by_a_wait_for_a_device) {
  const RankDevice device(test_device());
  const RankDeviceGuard guard(device);
  const auto rank = open_process(std::make_unique<SilentNetwork>(), {.deadline = std::chrono::milliseconds(40)},
                                 open_device_channels(WorldRank(0), stream_groups(), {}));
  std::optional<HeldStream> stopped(*device.stream());
  EXPECT_EQ(failure_of_wait(*rank, *device.stream()),
            "rank 0 waits for the loss on its device, behind messages from rank 1, which has never answered (no sign "
            "of life for 0.04 s)");
  stopped.reset();
  EXPECT_EQ(failure_of_wait(*rank, *device.stream()), "");
}

/// What two ranks send each other through the host.
struct Posts {
  HostMessages of(int rank) {
    return {.send = [this, rank](SendRequest request) { put(rank, std::move(request)); },
            .receive =
                [this, rank](WorldRank from, const Tag& tag, const std::string&) {
                  return take({from.value(), rank, tag});
                }};
  }

 private:
  using Address = std::tuple<std::int32_t, int, Tag>;

  void put(int from, SendRequest request) {
    {
      const std::lock_guard lock(mutex_);
      messages_.emplace(Address{from, request.to.value(), request.tag}, std::move(request.message));
    }
    arrived_.notify_all();
  }
  Message take(const Address& address) {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return messages_.contains(address); });
    return std::move(messages_.extract(address).mapped());
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<Address, Message> messages_;
};

// A rank may leave the world while the device of another one still works on what it has sent.
TEST(UnconfirmedSenders, are_those_that_have_not_said_what_they_have_sent) {
  Posts posts;
  const HostMessages of_sender = posts.of(0), of_receiver = posts.of(1);
  const auto form = std::make_shared<StepForm>(StepForm{"3 samples"});
  const std::vector<Payload> outline{{torch::empty({2}, torch::kMeta), false}};
  const Tag tag{.traffic = Traffic::forward};
  StaticSteps sender(WorldRank(0)), receiver(WorldRank(1));
  sender.begin({0, 0}, form);
  receiver.begin({0, 0}, form);
  sender.announces(WorldRank(1), tag, outline);
  receiver.remember(WorldRank(0), tag, outline);
  auto ends = std::async(std::launch::async, [&] { sender.end(of_sender, {WorldRank(1)}); });
  receiver.end(of_receiver, {WorldRank(0)});
  ends.get();
  for (const std::uint64_t step : {1, 2}) {
    Tag next = tag;
    next.step = step;
    sender.begin({0, step}, form);
    receiver.begin({0, step}, form);
    EXPECT_EQ(receiver.unconfirmed_senders(), std::vector<WorldRank>{});
    EXPECT_EQ(receiver.next(WorldRank(0)).tag, next);
    receiver.count_taken(WorldRank(0));
    EXPECT_EQ(receiver.unconfirmed_senders(), std::vector<WorldRank>{WorldRank(0)});
    EXPECT_FALSE(sender.announces(WorldRank(1), next, outline));
    sender.confirm(of_sender);
    receiver.confirm(of_receiver);
    EXPECT_EQ(receiver.unconfirmed_senders(), std::vector<WorldRank>{});
  }
}

/// A network whose last function may begin something on its device that does not end.
struct EndlessNetwork : Cell {
  Layer a = add("a", [] { return torch::nn::Linear(6, 6); }), b = add("b", [] { return torch::nn::Linear(6, 4); });
  bool is_endless = false;
  std::optional<HeldStream> held = std::nullopt;
  std::promise<void> is_held = {};

  Value forward(Value x) override {
    return apply(
        "endless",
        [this](const Tensors& t) {
          if (is_endless && !held) {
            held.emplace(current_stream(t[0].device()));
            is_held.set_value();
          }
          return t[0] * 1;
        },
        Values{b(a(x))});
  }
};

// Nothing but the end of the stream's work would end a plain wait for it.
TEST(WaitingRank, ends_with_its_world_whatever_it_waits_for) {
  stream_order().take_violations();
  const torch::Tensor inputs = torch::randn({8, 6}), targets = torch::arange(8) % 4;
  const Metric waiting{"sum",
                       [](const torch::Tensor& output, const torch::Tensor&) { return output.sum().item<double>(); }};
  using Wait = std::function<void()>;
  const auto result_of = [](const StepResult& result) -> Wait { return [=] { result.wait(); }; };
  const std::map<std::string, std::function<Wait(Pipeline&)>> steps{
      {"the end", [&](Pipeline& all) { return result_of(all.train_step(inputs, targets)); }},
      {"the loss",
       [&](Pipeline& all) { return result_of(all.train_step(inputs, targets, {.refuse_invalid_loss = true})); }},
      {"a metric", [&](Pipeline& all) { return result_of(all.evaluate(inputs, targets, {waiting})); }},
      {"the outputs", [&](Pipeline& all) -> Wait { return [result = all.infer({inputs})] { result.output(); }; }}};
  for (const auto& [what, step] : steps) {
    EndlessNetwork network;
    JoinedWorld joined({.stages = 2}, stream_groups());
    Pipeline trained(
        joined.world, network, cross_entropy,
        {.micro_batches = 2, .static_shapes = true, .device = "test", .partition = "uniform", .compare_batches = 0});
    trained.optimize_with([](const auto& parameters) { return torch::optim::SGD(parameters, 0.1); });
    for (int i = 0; i < 2; ++i) step(trained)();
    network.is_endless = true;
    const Wait endless = step(trained);
    network.is_held.get_future().wait();
    network.held->wait_for_a_waiter();
    joined.world.fail("rank 0 has stopped");
    EXPECT_THROW(endless(), RankFailure) << what;
    EXPECT_FALSE(network.held->stops_a_thread()) << what;
    network.held.reset();
  }
  EXPECT_EQ(stream_order().take_violations(), std::vector<std::string>{});
}

}  // namespace
}  // namespace penstock::test::device_waits_test
