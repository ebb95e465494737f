// The test device itself: what it computes, and which races it detects.
#include "tests/support/test_device.h"
#include "tests/base/error_text.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <future>
#include <optional>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace penstock::test::test_device_test {
namespace {

c10::Stream new_stream(int device = 0) {
  return c10::impl::VirtualGuardImpl(test_device().type()).getStreamFromGlobalPool(test_device(device));
}

/// The text of the violation of `call`.
template <class Call>
std::string violation(Call&& call) {
  try {
    call();
  } catch (const OrderViolation& error) {
    stream_order().take_violations();
    return error.what();
  }
  return "";
}

class TestDevice : public testing::Test {
 protected:
  void SetUp() override { stream_order().take_violations(); }
  void TearDown() override { EXPECT_EQ(stream_order().take_violations(), std::vector<std::string>{}); }
};

TEST_F(TestDevice, computes_the_bits_of_the_cpu) {
  torch::manual_seed(1);
  torch::nn::Sequential network(torch::nn::Conv1d(torch::nn::Conv1dOptions(2, 4, 3).padding(1)),
                                torch::nn::BatchNorm1d(4), torch::nn::Flatten(), torch::nn::Linear(32, 6),
                                torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})), torch::nn::GELU());
  const torch::Tensor x = torch::randn({5, 2, 8}), target = torch::arange(5) % 6;
  const auto run = [&](c10::Device device) {
    auto copy = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(network->clone());
    copy->to(device);
    torch::optim::Adam optimizer(copy->parameters(), 0.1);
    const torch::Tensor loss = torch::cross_entropy_loss(copy->forward(x.to(device)), target.to(device));
    loss.backward();
    optimizer.step();
    std::vector<torch::Tensor> results{loss.detach().cpu()};
    for (const torch::Tensor& parameter : copy->parameters()) results.push_back(parameter.detach().cpu());
    return results;
  };
  const auto expected = run(c10::kCPU), got = run(test_device());
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(torch::equal(got[i], expected[i])) << i;
}

TEST_F(TestDevice, draws_the_numbers_of_the_cpu) {
  at::Generator cpu = at::detail::createCPUGenerator();
  cpu.set_current_seed(3);
  at::Generator of_device = at::globalContext().defaultGenerator(test_device());
  of_device.set_current_seed(3);
  const torch::Tensor expected = torch::empty({64}).normal_(0, 1, cpu);
  EXPECT_TRUE(torch::equal(torch::randn({64}, test_device()).cpu(), expected));
}

TEST_F(TestDevice, an_unordered_read_names_both_operations) {
  const c10::Stream other = new_stream();
  const torch::Tensor made = torch::ones({4}, test_device()).mul(2);
  const c10::StreamGuard guard(other);
  const std::string text = violation([&] { made.add(1); });
  EXPECT_TRUE(test::says(text, "aten::add on stream " + std::to_string(other.id()),
                         "reads the result of aten::mul on stream 0 of device 0"))
      << text;
}

TEST_F(TestDevice, an_unordered_write_names_the_read) {
  torch::Tensor made = torch::ones({4}, test_device());
  const c10::Stream other = new_stream();
  c10::Event ready(test_device().type());
  ready.record(c10::impl::VirtualGuardImpl(test_device().type()).getStream(test_device()));
  made.add(1);  // behind the event
  const c10::StreamGuard guard(other);
  ready.block(other);
  const std::string text = violation([&] { made.mul_(2); });
  EXPECT_TRUE(test::says(text, "aten::mul on stream " + std::to_string(other.id()),
                         "overwrites what is read by aten::add on stream 0"))
      << text;
}

TEST_F(TestDevice, an_event_orders) {
  const torch::Tensor made = torch::ones({4}, test_device()).mul(2);
  const c10::Stream other = new_stream();
  c10::Event ready(test_device().type());
  ready.record(c10::impl::VirtualGuardImpl(test_device().type()).getStream(test_device()));
  const c10::StreamGuard guard(other);
  ready.block(other);
  made.record_stream(other);
  EXPECT_EQ(made.add(1).sum().item<float>(), 12);
}

TEST_F(TestDevice, waiting_on_the_host_orders_and_is_counted) {
  const torch::Tensor made = torch::ones({4}, test_device()).mul(2);
  stream_order().forget_synchronizations();
  EXPECT_EQ(made.sum().item<float>(), 8);
  made.cpu();
  EXPECT_EQ(stream_order().synchronizations(),
            (std::map<std::string, int>{{"aten::_local_scalar_dense", 1}, {"copy to the host", 1}}));
  const c10::StreamGuard guard(new_stream());
  made.record_stream(guard.current_stream());
  made.add(1);
}

TEST_F(TestDevice, memory_of_another_device_is_refused) {
  const torch::Tensor first = torch::ones({4}, test_device());
  const c10::DeviceGuard guard(test_device(1));
  const std::string text = violation([&] { first.fill_(1); });
  EXPECT_NE(text.find("uses memory of device 0, which is not the current one"), std::string::npos) << text;
}

TEST_F(TestDevice, copies_between_devices_are_ordered_with_the_current_streams) {
  const torch::Tensor first = torch::ones({4}, test_device()).mul(2);
  const c10::DeviceGuard guard(test_device(1));
  EXPECT_EQ(first.to(test_device(1)).add(1).sum().item<float>(), 12);
}

TEST_F(TestDevice, memory_freed_under_another_stream_is_a_violation_unless_it_is_recorded) {
  for (const bool is_recorded : {false, true}) {
    torch::Tensor made = torch::ones({4}, test_device());
    const c10::Stream other = new_stream();
    c10::Event ready(test_device().type());
    ready.record(c10::impl::VirtualGuardImpl(test_device().type()).getStream(test_device()));
    ready.block(other);
    const c10::StreamGuard guard(other);
    made.add(1);
    if (is_recorded) made.record_stream(other);
    made.reset();
    const auto violations = stream_order().take_violations();
    ASSERT_EQ(violations.size(), is_recorded ? 0u : 1u);
    if (is_recorded) continue;
    EXPECT_NE(violations[0].find("is freed while aten::add on stream"), std::string::npos) << violations[0];
  }
}

TEST_F(TestDevice, a_copy_to_the_host_arrives_when_it_was_waited_for) {
  const torch::Tensor made = torch::full({4}, 2.0f, test_device());
  const torch::Tensor host = torch::empty({4});
  host.copy_(made, /*non_blocking=*/true);
  EXPECT_NE(host[0].item<float>(), 2);
  c10::Event done(test_device().type());
  done.record(c10::impl::VirtualGuardImpl(test_device().type()).getStream(test_device()));
  done.synchronize();
  EXPECT_EQ(host[0].item<float>(), 2);
}

TEST_F(TestDevice, what_is_behind_an_operation_without_end_is_not_complete) {
  const c10::Stream stream = new_stream();
  c10::Event done(test_device().type());
  const c10::Stream other = new_stream();
  done.record(stream);
  EXPECT_TRUE(done.query());
  std::optional<HeldStream> held(stream);
  EXPECT_TRUE(done.query());
  EXPECT_TRUE(other.query());
  done.record(stream);
  done.block(other);
  EXPECT_FALSE(done.query());
  EXPECT_FALSE(other.query());
  EXPECT_FALSE(held->stops_a_thread());
  auto waits = std::async(std::launch::async, [&] { done.synchronize(); });
  held->wait_for_a_waiter();
  EXPECT_TRUE(held->stops_a_thread());
  held.reset();
  waits.get();
  EXPECT_TRUE(done.query());
}

}  // namespace
}  // namespace penstock::test::test_device_test
