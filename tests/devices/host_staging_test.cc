// Messages between processes with tensors on devices: the ranks of one process, joined by Gloo as if each were one of
// its own, train on test devices.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "penstock/world/rank_device.h"
#include "tests/devices/joined_here.h"
#include "tests/devices/joined_jobs.h"
#include "tests/support/test_device.h"

namespace penstock::test::host_staging_test {
namespace {

class Staging : public testing::Test {
 protected:
  void SetUp() override {
    stream_order().take_violations();
    stream_order().forget_synchronizations();
  }
  void TearDown() override { EXPECT_EQ(stream_order().take_violations(), std::vector<std::string>{}); }
};

TEST_F(Staging, a_message_is_complete_and_keeps_its_strides_and_its_sender_waits_for_no_stream) {
  auto ranks = open_here(2);
  {
    const RankDevice sender(test_device(1));
    const RankDeviceGuard guard(sender);
    const torch::Tensor values = torch::arange(12, torch::kFloat).view({3, 4}).to(test_device(1)) * 2;
    stream_order().forget_synchronizations();
    // The memory is given back, and may be used again, while the message is under way.
    ranks[0]->send(WorldRank(1), {},
                   {{{values.t().clone(torch::MemoryFormat::Preserve), false},
                     {torch::Tensor(), false},
                     {torch::ones({3}), false}}});
    for (int i = 0; i < 10; ++i) torch::zeros({3, 4}, test_device(1)).add_(1);
  }
  const Message got = ranks[1]->receive(WorldRank(0), {}, "1RECV_F0");
  const torch::Tensor& arrived = got.payloads[0].tensor;
  EXPECT_TRUE(arrived.is_cpu());
  EXPECT_EQ(arrived.strides(), (std::vector<std::int64_t>{1, 4}));
  EXPECT_TRUE(torch::equal(arrived, torch::arange(12, torch::kFloat).view({3, 4}).t() * 2));
  EXPECT_FALSE(got.payloads[1].tensor.defined());
  EXPECT_TRUE(torch::equal(got.payloads[2].tensor, torch::ones({3})));
  // That of the staging thread.
  EXPECT_EQ(stream_order().synchronizations(), (std::map<std::string, int>{{"event", 1}}));
  close(std::move(ranks));
}

TEST_F(Staging, messages_are_sent_before_an_endpoint_is_closed) {
  auto ranks = open_here(2);
  std::thread sender([&] {
    const RankDevice device(test_device(0));
    const RankDeviceGuard guard(device);
    for (int i = 0; i < 20; ++i)
      ranks[0]->send(WorldRank(1), {.micro_batch = i}, {{{torch::full({64}, i, test_device(0)), false}}});
    ranks[0].reset();
  });
  for (int i = 0; i < 20; ++i) {
    const Message got = ranks[1]->receive(WorldRank(0), {.micro_batch = i}, "1RECV_F0");
    EXPECT_TRUE(torch::equal(got.payloads[0].tensor, torch::full({64}, i)));
  }
  ranks[1].reset();
  sender.join();
}

TEST_F(Staging, every_schedule_equals_the_cpu) { compare_deep_jobs(); }
TEST_F(Staging, skips_ties_and_recompute_equal_the_cpu) { compare_u_jobs({.stages = 2}, 5); }

TEST_F(Staging, no_rank_waits_for_its_stream_within_a_step) {
  constexpr int stages = 2, micro_batches = 4;
  JoinedWorld joined({.stages = stages});
  DeepNetwork network;
  Pipeline pipeline(joined.world, network, cross_entropy,
                    {.micro_batches = micro_batches, .device = torch::Device("test")});
  pipeline.optimize_with([](const auto& parameters) { return torch::optim::SGD(parameters, 0.1); });
  const torch::Tensor inputs = torch::randn({8, 6}), targets = torch::arange(8) % 4;
  for (int step = 0; step < 2; ++step) pipeline.train_step(inputs, targets).wait();
  stream_order().forget_synchronizations();
  pipeline.train_step(inputs, targets).wait();
  // Every rank waits once for its stream, at the end of the step, and reads the device's clock. The staging threads
  // wait for the copies of one value and one gradient of each micro-batch.
  EXPECT_EQ(stream_order().synchronizations(),
            (std::map<std::string, int>{{"event", stages + 2 * micro_batches}, {"stream", stages}}));
}

}  // namespace
}  // namespace penstock::test::host_staging_test
