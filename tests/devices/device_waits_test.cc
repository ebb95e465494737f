// Waits of the host for its device, which may wait for other ranks: they watch these, and end where a plain wait would
// not.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/penstock.h"
#include "penstock/transport/device_hand_over.h"
#include "penstock/transport/devices/device_channels.h"
#include "penstock/transport/processes/buffer_network.h"
#include "penstock/world/device.h"
#include "tests/base/error_text.h"
#include "tests/devices/joined_here.h"
#include "tests/support/stream_groups.h"
#include "tests/support/test_device.h"
#include "tests/transport/silent_network.h"

namespace penstock::test::device_waits_test {
namespace {

/// Two ranks with device channels.
class DeviceWaits : public testing::Test {
 protected:
  void SetUp() override {
    stream_order().take_violations();
    both([&](int rank) {
      ranks_[index(rank)]->connect({.pairs = {{WorldRank(0), WorldRank(1)}}, .device = test_device(rank)});
    });
  }
  void TearDown() override {
    close(std::move(ranks_));
    EXPECT_EQ(stream_order().take_violations(), std::vector<std::string>{});
  }

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  /// Runs `work` for both ranks, each on a thread of its own, the device and stream of which are the rank's.
  template <class Work>
  void both(const Work& work) {
    const auto on_device = [&](int rank) {
      const RankDeviceGuard guard(devices_[index(rank)]);
      work(rank);
      devices_[index(rank)].synchronize();
    };
    auto first = std::async(std::launch::async, [&] { on_device(0); });
    on_device(1);
    first.get();
  }

  const c10::Stream& stream_of(int rank) const { return *devices_[index(rank)].stream(); }

  std::vector<std::unique_ptr<Transport>> ranks_ = open_here(2, stream_groups());
  RankDevice devices_[2] = {RankDevice(test_device(0)), RankDevice(test_device(1))};
};

/// The text of the failure of a wait for the device of `rank`; empty where it ends well.
std::string failure_of_wait(Transport& rank, const c10::Stream& stream) {
  return test::error_text<TransportError>([&] { rank.await_stream(stream, "the loss"); });
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
              "rank 1 gave up waiting for the loss on its device, after messages: rank 0 has stopped");
    stopped.reset();
    EXPECT_NE(failure_of_wait(*ranks_[1], stream_of(1)), "[no error]")
        << "the device may have gone on because of the abort";
  });
}

TEST(SilentRank, is_named_by_a_wait_for_a_device) {
  const RankDevice device(test_device());
  const RankDeviceGuard guard(device);
  const auto rank =
      processes::open_process(std::make_unique<SilentNetwork>(), {.deadline = std::chrono::milliseconds(40)},
                              devices::open_device_channels(WorldRank(0), stream_groups(), {}));
  std::optional<HeldStream> stopped(*device.stream());
  EXPECT_EQ(failure_of_wait(*rank, *device.stream()),
            "rank 0 waits for the loss on its device, after messages from rank 1, which has never answered (no sign "
            "of life for 0.04 s)");
  stopped.reset();
  EXPECT_EQ(failure_of_wait(*rank, *device.stream()), "[no error]");
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
            held.emplace(transport::current_stream(t[0].device()));
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
        {.micro_batches = 2, .device = torch::Device("test"), .partition = "uniform", .compare_batches = 0});
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
