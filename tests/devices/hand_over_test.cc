// Messages between ranks of one process with tensors on devices, and the names of devices.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <c10/core/StreamGuard.h>

#include "penstock/transport/transport.h"
#include "penstock/world/device.h"
#include "penstock/world/rank_device.h"
#include "tests/support/test_device.h"

namespace penstock::test::hand_over_test {
namespace {

class HandOver : public testing::Test {
 protected:
  void SetUp() override {
    stream_order().take_violations();
    stream_order().forget_synchronizations();
  }
  void TearDown() override { EXPECT_EQ(stream_order().take_violations(), std::vector<std::string>{}); }
};

/// Rank 0 on device `from` sends the product of 2 and ones(64) to rank 1 on device `to`, which doubles it.
torch::Tensor sent_and_doubled(int from, int to) {
  const auto ranks = open_threads(2, {});
  const RankDevice sender(test_device(from)), receiver(test_device(to));
  {
    const RankDeviceGuard guard(sender);
    ranks[0]->send(WorldRank(1), {}, {{{torch::ones({64}, test_device(from)) * 2, false}, {torch::ones({3}), false}}});
  }
  const RankDeviceGuard guard(receiver);
  const Message got = ranks[1]->receive(WorldRank(0), {}, "1RECV_F0");
  EXPECT_TRUE(got.payloads[1].tensor.is_cpu());
  const torch::Tensor doubled = got.payloads[0].tensor * 2;
  EXPECT_EQ(stream_order().synchronizations(), (std::map<std::string, int>{}));
  return doubled.cpu();
}

TEST_F(HandOver, orders_the_streams_of_one_device) {
  EXPECT_TRUE(torch::equal(sent_and_doubled(0, 0), torch::full({64}, 4.0f)));
}

TEST_F(HandOver, copies_from_another_device) {
  EXPECT_TRUE(torch::equal(sent_and_doubled(2, 1), torch::full({64}, 4.0f)));
}

TEST_F(HandOver, keeps_the_storage_on_one_device) {
  const auto ranks = open_threads(1, {});
  const RankDevice device(test_device(0));
  const RankDeviceGuard guard(device);
  const torch::Tensor sent = torch::ones({64}, test_device(0));
  ranks[0]->send(WorldRank(0), {}, {{{sent, false}}});
  const Message got = ranks[0]->receive(WorldRank(0), {}, "0RECV_F0");
  EXPECT_EQ(got.payloads[0].tensor.storage().data(), sent.storage().data());
}

TEST_F(HandOver, ranks_take_the_devices_of_a_type_in_turn) {
  EXPECT_EQ(device_of(torch::Device("test"), 4), test_device(1));
  EXPECT_EQ(device_of(torch::Device("test:2"), 4), test_device(2));
  EXPECT_THROW(device_of(torch::Device("test:3"), 0), ConfigError);
  EXPECT_NE(resolved_device(std::nullopt).type(), test_device().type());
}

TEST_F(HandOver, a_rank_computes_on_a_stream_of_its_device) {
  const RankDevice first(test_device(1)), second(test_device(1));
  EXPECT_NE(*first.stream(), *second.stream());
  const c10::Device before = c10::impl::VirtualGuardImpl(test_device().type()).getDevice();
  {
    const RankDeviceGuard guard(first);
    const c10::impl::VirtualGuardImpl present(test_device().type());
    EXPECT_EQ(present.getDevice(), test_device(1));
    EXPECT_EQ(present.getStream(test_device(1)), *first.stream());
  }
  EXPECT_EQ(c10::impl::VirtualGuardImpl(test_device().type()).getDevice(), before);
  EXPECT_FALSE(RankDevice(c10::kCPU).stream());
}

}  // namespace
}  // namespace penstock::test::hand_over_test
