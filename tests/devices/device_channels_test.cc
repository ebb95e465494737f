// Device channels: ranks of one process, joined by Gloo as if each were one of its own, whose tensors travel in groups
// with the rules of NCCL on test devices.
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cmath>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/transport/processes/peer_processes.h"
#include "penstock/transport/transport.h"
#include "penstock/world/device.h"
#include "tests/base/error_text.h"
#include "tests/devices/joined_here.h"
#include "tests/devices/joined_jobs.h"
#include "tests/support/expect_same.h"
#include "tests/support/stream_groups.h"
#include "tests/support/test_device.h"

namespace penstock::test::device_channels_test {
namespace {

constexpr std::uint32_t pipeline = 0;

/// The tag of a value of micro-batch `i`.
Tag value(int i) { return {.pipeline = pipeline, .traffic = Traffic::forward, .micro_batch = i}; }

class DeviceChannels : public testing::Test {
 protected:
  using Endpoints = std::vector<std::unique_ptr<Transport>>;

  void SetUp() override { stream_order().take_violations(); }
  void TearDown() override { EXPECT_EQ(stream_order().take_violations(), std::vector<std::string>{}); }

  /// Runs both on threads of their own, the device and stream of which are those of a rank on test:RANK.
  static void run(const std::function<void()>& rank_0, const std::function<void()>& rank_1) {
    const auto on_device = [](int index, const std::function<void()>& work) {
      const RankDevice device(test_device(index));
      const RankDeviceGuard guard(device);
      work();
      device.synchronize();
    };
    auto first = std::async(std::launch::async, [&] { on_device(0, rank_0); });
    on_device(1, rank_1);
    first.get();
  }

  static void connect(const Endpoints& ranks) {
    const std::vector<RankPair> pairs{{WorldRank(0), WorldRank(1)}, {WorldRank(1), WorldRank(0)}};
    run(
        [&] {
          ranks[0]->connect({pipeline, pairs, test_device(0)});
        },
        [&] {
          ranks[1]->connect({pipeline, pairs, test_device(1)});
        });
  }
};

TEST_F(DeviceChannels, carry_messages_from_device_to_device_as_they_are) {
  auto ranks = open_here(2, stream_groups());
  EXPECT_EQ(ranks[0]->name(), "streams");
  EXPECT_FALSE(ranks[0]->can_cancel());
  connect(ranks);
  const auto sender = [&] {
    const torch::Tensor values = torch::arange(12, torch::kFloat).view({3, 4}).to(test_device(0)) * 2;
    // The memory is given back, and may be used again, while the message is under way.
    ranks[0]->send(WorldRank(1), value(0),
                   {{{values.t().clone(torch::MemoryFormat::Preserve), true},
                     {torch::Tensor(), false},
                     {torch::ones({3}), false},
                     {torch::empty({0, 5}, test_device(0)), false},
                     {torch::tensor({true, false}).to(test_device(0)), false}}});
    for (int i = 0; i < 10; ++i) torch::zeros({3, 4}, test_device(0)).add_(1);
    ranks[0]->receive(WorldRank(1), value(1), "0RECV_B0");  // the next step begins with what the other one answers
  };
  const auto receiver = [&] {
    const Message got = ranks[1]->receive(WorldRank(0), value(0), "1RECV_F0");
    ASSERT_EQ(got.payloads.size(), 5U);
    const torch::Tensor& arrived = got.payloads[0].tensor;
    EXPECT_EQ(arrived.device(), test_device(1));
    EXPECT_TRUE(got.payloads[0].requires_grad);
    EXPECT_EQ(arrived.strides(), (std::vector<std::int64_t>{1, 4}));
    EXPECT_TRUE(torch::equal(arrived.cpu(), torch::arange(12, torch::kFloat).view({3, 4}).t() * 2));
    EXPECT_FALSE(got.payloads[1].tensor.defined());
    EXPECT_TRUE(torch::equal(got.payloads[2].tensor, torch::ones({3})));
    EXPECT_EQ(got.payloads[3].tensor.sizes(), (std::vector<std::int64_t>{0, 5}));
    EXPECT_TRUE(torch::equal(got.payloads[4].tensor.cpu(), torch::tensor({true, false})));
    ranks[1]->send(WorldRank(0), value(1), {{{arrived * 2, false}}});
  };
  run(sender, receiver);
  close(std::move(ranks));
}

TEST_F(DeviceChannels, messages_are_received_in_any_order) {
  auto ranks = open_here(2, stream_groups());
  connect(ranks);
  constexpr int count = 20;
  run(
      [&] {
        for (int i = 0; i < count; ++i)
          ranks[0]->send(WorldRank(1), value(i), {{{torch::full({i + 1}, i, test_device(0)), false}}});
      },
      [&] {
        for (int i = count - 1; i >= 0; --i) {
          const Message got = ranks[1]->receive(WorldRank(0), value(i), "1RECV_F0");
          EXPECT_TRUE(torch::equal(got.payloads[0].tensor.cpu(), torch::full({i + 1}, i)));
        }
      });
  close(std::move(ranks));
}

TEST_F(DeviceChannels, other_messages_pass_through_the_host) {
  auto ranks = open_here(2, stream_groups());
  connect(ranks);
  Tag other_pipeline = value(0), control = value(0);
  other_pipeline.pipeline = pipeline + 1;
  control.traffic = Traffic::control;
  run(
      [&] {
        for (const Tag& tag : {other_pipeline, control})
          ranks[0]->send(WorldRank(1), tag, {{{torch::ones({2}, test_device(0)), false}}});
      },
      [&] {
        for (const Tag& tag : {control, other_pipeline})
          EXPECT_TRUE(ranks[1]->receive(WorldRank(0), tag, "a message").payloads[0].tensor.is_cpu());
      });
  close(std::move(ranks));
}

TEST_F(DeviceChannels, an_abort_ends_transfers_and_a_cancellation_is_one) {
  {
    auto ranks = open_here(2, stream_groups());
    connect(ranks);
    ranks[0]->cancel({pipeline, 0}, "the step broke");
    EXPECT_EQ(ranks[0]->aborted(), "the step broke");
    run([] {}, [&] { EXPECT_THROW(ranks[1]->receive(WorldRank(0), value(0), "1RECV_F0"), WorldAborted); });
    close(std::move(ranks));
  }
  auto ranks = open_here(2, stream_groups());
  connect(ranks);
  std::promise<void> has_sent;
  run(
      [&] {
        const auto send = [&](std::uint64_t step) {
          Tag tag = value(0);
          tag.step = step;
          ranks[0]->send(WorldRank(1), tag, {{{torch::ones({2}, test_device(0)), false}}});
        };
        send(0);
        has_sent.set_value();
        EXPECT_ANY_THROW(send(1));  // waits for the receive of the step before, which never comes
      },
      [&] {
        has_sent.get_future().wait();
        ranks[1]->abort("the layer broke");
      });
  close(std::move(ranks));
}

TEST_F(DeviceChannels, ranks_whose_devices_cannot_be_joined_are_named) {
  DeviceGroups groups = stream_groups();
  groups.make = [](const auto&, ProcessRank) -> c10::intrusive_ptr<c10d::Backend> {
    throw std::runtime_error("Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000");
  };
  auto ranks = open_here(2, groups);
  EXPECT_EQ(test::error_text<ConfigError>([&] { connect(ranks); }),
            "ranks 0 and 1 cannot be connected by streams: Duplicate GPU detected : rank 0 and rank 1 both on CUDA "
            "device 1000: give each rank a device of its own, or use --transport gloo");
  for (const auto& rank : ranks) rank->abort("no connection");
  close(std::move(ranks));
}

TEST_F(DeviceChannels, ranks_on_another_type_of_device_are_refused) {
  JoinedWorld joined({.stages = 2}, stream_groups());
  DeepNetwork network;
  EXPECT_EQ(test::error_text<ConfigError>([&] {
              Pipeline(joined.world, network, cross_entropy, {.micro_batches = 4, .device = torch::Device("cpu")});
            }),
            "the transport streams carries tensors of devices of type test, but rank 0 is on cpu: give it such a "
            "device, or use --transport gloo");
}

TEST_F(DeviceChannels, two_ranks_on_one_device_are_refused_where_the_library_needs_one_for_each) {
  DeviceGroups groups = stream_groups();
  groups.needs_own_devices = true;
  JoinedWorld joined({.stages = 2}, groups);
  DeepNetwork network;
  EXPECT_EQ(test::error_text<ConfigError>([&] {
              Pipeline(joined.world, network, cross_entropy, {.micro_batches = 4, .device = torch::Device("test:1")});
            }),
            "rank 0 and rank 1 have the same device, test:1, and streams needs one for each rank: give each rank "
            "its own, or use --transport gloo");
}

TEST(PhysicalDevice, is_told_by_host_and_entry_of_the_visible_devices) {
  const auto on = [](int index, const char* visible, const char* host = "a") {
    return processes::physical_device({"test", index}, [=](const char* variable) {
      return std::string_view(variable) == processes::host_variable ? host : visible;
    });
  };
  EXPECT_EQ(on(1, nullptr), on(1, ""));
  EXPECT_NE(on(1, nullptr), on(0, nullptr));
  EXPECT_EQ(on(0, "1"), on(1, nullptr)) << "what a launcher gives each of its processes";
  EXPECT_EQ(on(0, "3,1"), on(1, "0,3,2"));
  EXPECT_NE(on(0, "3,1"), on(1, "3,1"));
  EXPECT_NE(on(0, "3"), on(0, "3", "b"));
}

TEST_F(DeviceChannels, every_schedule_equals_the_cpu) { compare_deep_jobs(stream_groups()); }
TEST_F(DeviceChannels, skips_ties_and_recompute_equal_the_cpu) { compare_u_jobs({.stages = 2}, 5, stream_groups()); }
TEST_F(DeviceChannels, replicas_equal_the_cpu) { compare_u_jobs({.stages = 2, .replicas = 2}, 2, stream_groups()); }

TEST_F(DeviceChannels, whatever_else_a_program_does_equals_ranks_of_one_process) {
  World threads({.stages = 2});
  JoinedWorld joined({.stages = 2}, stream_groups());
  // In bf16 a layer converts its weights once for all micro-batches of a step.
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const auto expected = state_after_whatever_else(threads, {.precision = precision});
    const auto got = state_after_whatever_else(joined.world, {.precision = precision});
    ASSERT_EQ(got.size(), expected.size());
    expect_same(expected, got);
  }
}

TEST_F(DeviceChannels, a_loss_that_is_refused_ends_the_world_and_is_named) {
  JoinedWorld joined({.stages = 2}, stream_groups());
  DeepNetwork network;
  Pipeline trained(joined.world, network, cross_entropy, {.micro_batches = 3, .device = torch::Device("test")});
  trained.optimize_with([](const auto& parameters) { return torch::optim::SGD(parameters, 0.1); });
  torch::Tensor inputs = torch::randn({9, 6});
  const torch::Tensor targets = torch::arange(9) % 4;
  const StepOptions refusing{.refuse_invalid_loss = true};
  for (int step = 0; step < 2; ++step) EXPECT_GT(trained.train_step(inputs, targets, refusing).loss(), 0);
  inputs[4][2] = std::nan("");
  EXPECT_EQ(test::error_text<RankFailure>([&] { trained.train_step(inputs, targets, refusing).wait(); }),
            "rank 1 (stage 1) failed at 1F1 of step 2: the loss is nan");
}

TEST_F(DeviceChannels, no_rank_waits_for_its_stream_within_a_step_and_no_value_passes_through_the_host) {
  constexpr int stages = 2;
  JoinedWorld joined({.stages = stages}, stream_groups());
  DeepNetwork network;
  Pipeline trained(joined.world, network, cross_entropy, {.micro_batches = 4, .device = torch::Device("test")});
  trained.optimize_with([](const auto& parameters) { return torch::optim::SGD(parameters, 0.1); });
  const torch::Tensor inputs = torch::randn({8, 6}), targets = torch::arange(8) % 4;
  for (int step = 0; step < 2; ++step) trained.train_step(inputs, targets).wait();
  stream_order().forget_synchronizations();
  trained.train_step(inputs, targets).wait();
  // Every rank waits once for its stream, at the end of the step, and reads the device's clock.
  EXPECT_EQ(stream_order().synchronizations(), (std::map<std::string, int>{{"event", stages}, {"stream", stages}}));
}

TEST_F(DeviceChannels, a_layer_that_throws_ends_the_world_and_is_named) {
  struct Breaking : Cell {
    Layer a = add("a", [] { return torch::nn::Linear(6, 6); }), b = add("b", [] { return torch::nn::Linear(6, 4); });
    bool breaks = false;
    Value forward(Value x) override {
      return apply(
          "breaking",
          [this](const Tensors& t) {
            if (breaks) throw std::runtime_error("the layer broke");
            return t[0] * 1;
          },
          Values{b(a(x))});
    }
  } network;
  JoinedWorld joined({.stages = 2}, stream_groups());
  Pipeline trained(joined.world, network, cross_entropy,
                   {.micro_batches = 4, .device = torch::Device("test"), .partition = "uniform"});
  trained.optimize_with([](const auto& parameters) { return torch::optim::SGD(parameters, 0.1); });
  const torch::Tensor inputs = torch::randn({8, 6}), targets = torch::arange(8) % 4;
  trained.train_step(inputs, targets).wait();
  network.breaks = true;
  const std::string text = test::error_text<RankFailure>([&] { trained.train_step(inputs, targets).wait(); });
  EXPECT_EQ(text.find("rank 1 (stage 1) failed at 1F0 of step 1: the layer broke"), 0U) << text;
}

}  // namespace
}  // namespace penstock::test::device_channels_test
