// Static steps of two ranks, message by message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/world/rank_device.h"
#include "tests/devices/joined_here.h"
#include "tests/support/stream_groups.h"
#include "tests/support/test_device.h"

namespace penstock::test {

/// Two ranks with device channels, of which rank 0 sends and rank 1 receives.
class StaticPair : public testing::Test {
 protected:
  static constexpr std::uint32_t pipeline = 0;

  static Tag value(std::uint64_t step, int i) {
    return {.pipeline = pipeline, .traffic = Traffic::forward, .step = step, .to_stage = 1, .micro_batch = i};
  }

  void SetUp() override {
    stream_order().take_violations();
    connect();
  }
  void TearDown() override {
    close(std::move(ranks_));
    EXPECT_EQ(stream_order().take_violations(), std::vector<std::string>{});
  }

  void connect() {
    const std::vector<RankPair> pairs{{WorldRank(0), WorldRank(1)}, {WorldRank(1), WorldRank(0)}};
    both([&](int rank) { ranks_[index(rank)]->connect({pipeline, pairs, test_device(rank)}); });
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

  void begin(int rank, std::uint64_t step) { ranks_[index(rank)]->begin_step({pipeline, step}, forms_[index(rank)]); }
  void end(int rank) {
    ranks_[index(rank)]->confirm_step();
    ranks_[index(rank)]->end_step(pipeline);
  }
  void send(std::uint64_t step, int i, const torch::Tensor& tensor) {
    ranks_[0]->send(WorldRank(1), value(step, i), {{{tensor.to(test_device(0)) * 1, false}}});
  }
  torch::Tensor receive(std::uint64_t step, int i) {
    return ranks_[1]->receive(WorldRank(0), value(step, i), "1RECV_F").payloads[0].tensor;
  }
  /// A step of `count` messages, which rank 1 takes in the order of sending and drops.
  void step_of(std::uint64_t step, int count) {
    both([&](int rank) {
      begin(rank, step);
      for (int i = 0; i < count; ++i) {
        const torch::Tensor numbers = torch::full({3, 2}, static_cast<double>(step) + i);
        if (rank == 0)
          send(step, i, numbers);
        else
          EXPECT_TRUE(torch::equal(receive(step, i).cpu(), numbers));
      }
      end(rank);
    });
  }

  std::vector<std::unique_ptr<Transport>> ranks_ = open_here(2, stream_groups());
  RankDevice devices_[2] = {RankDevice(test_device(0)), RankDevice(test_device(1))};
  std::shared_ptr<const StepForm> forms_[2] = {std::make_shared<StepForm>(StepForm{"3 samples"}),
                                               std::make_shared<StepForm>(StepForm{"3 samples"})};
};

}  // namespace penstock::test
