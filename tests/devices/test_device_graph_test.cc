// Graphs of the test device: what a replay computes, and which mistakes of a capture are errors.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/GraphImplInterface.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "penstock/layers/backward_thread.h"
#include "penstock/world/rank_device.h"
#include "tests/support/test_device.h"
#include "tests/support/test_device_graph.h"

namespace penstock::test::test_device_graph_test {
namespace {

class TestDeviceGraph : public testing::Test {
 protected:
  void SetUp() override { stream_order().take_violations(); }
  void TearDown() override { EXPECT_EQ(stream_order().take_violations(), std::vector<std::string>{}); }

  template <class Work>
  void capture(const Work& work) {
    graph_->capture_begin();
    try {
      work();
    } catch (...) {
      graph_->reset();
      throw;
    }
    graph_->capture_end();
  }
  /// The error of a capture; empty without one.
  template <class Work>
  std::string error_of(const Work& work) {
    try {
      capture(work);
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "";
  }

  const RankDevice device_{test_device()};
  const RankDeviceGuard guard_{device_};
  const c10::Stream other_ = c10::impl::VirtualGuardImpl(test_device().type()).getStreamFromGlobalPool(test_device());
  std::unique_ptr<at::GraphImplInterface> graph_ = at::create_graph_impl(test_device().type());
};

TEST_F(TestDeviceGraph, replays_what_was_captured_with_the_present_values) {
  torch::Tensor x = torch::zeros({2, 3}).to(test_device()), sum = torch::zeros({3}).to(test_device());
  torch::Tensor weight = torch::ones({3, 3}).to(test_device()).requires_grad_();
  torch::Tensor y, gradient;
  capture([&] {
    y = torch::matmul(x, weight).relu();
    const BackwardOnThisThread on_this_thread;
    gradient = torch::autograd::grad({y.sum()}, {weight})[0];
    const torch::NoGradGuard no_grad;
    sum.add_(torch::cat({x, x}).sum(0));
  });
  EXPECT_TRUE(torch::equal(sum.cpu(), torch::zeros({3}))) << "a capture executes nothing";
  for (const double value : {1.0, 2.0}) {
    const torch::NoGradGuard no_grad;
    x.fill_(value);
    graph_->replay();
    EXPECT_TRUE(torch::equal(y.cpu(), torch::full({2, 3}, 3 * value)));
    EXPECT_TRUE(torch::equal(gradient.cpu(), torch::full({3, 3}, 2 * value)));
  }
  EXPECT_TRUE(torch::equal(sum.cpu(), torch::full({3}, 12.0)));
}

TEST_F(TestDeviceGraph, captures_streams_that_are_forked_and_joined) {
  const torch::Tensor x = torch::ones({3}).to(test_device());
  torch::Tensor y;
  const auto order = [](const c10::Stream& before, const c10::Stream& after) {
    c10::Event event(test_device().type());
    event.record(before);
    event.block(after);
  };
  const auto on_other = [&] {
    order(*device_.stream(), other_);
    const c10::StreamGuard guard(other_);
    y = x * 2;
  };
  capture([&] {
    on_other();
    order(other_, *device_.stream());
    y = y + 1;
  });
  graph_->replay();
  EXPECT_TRUE(torch::equal(y.cpu(), torch::full({3}, 3.0)));

  graph_ = at::create_graph_impl(test_device().type());
  EXPECT_NE(error_of(on_other).find("is not joined at the end of a capture"), std::string::npos);
  graph_ = at::create_graph_impl(test_device().type());
  EXPECT_NE(error_of([&] {
              const c10::StreamGuard guard(other_);
              y = x * 2;
            }).find("which is not part of the capture"),
            std::string::npos);
  c10::Event before(test_device().type()), within(test_device().type());
  before.record(*device_.stream());
  EXPECT_EQ(error_of([&] { before.block(*device_.stream()); }),
            "a stream of a capture waits for an event from before it");
  EXPECT_EQ(error_of([&] { within.record(*device_.stream()); }), "");
  EXPECT_THROW(within.block(other_), CaptureError);
  EXPECT_THROW(within.query(), CaptureError);
}

TEST_F(TestDeviceGraph, refuses_what_a_graph_cannot_contain) {
  torch::Tensor x = torch::ones({3}).to(test_device());
  EXPECT_EQ(error_of([&] { x.sum().item<double>(); }), "a number for the host in a capture");
  EXPECT_EQ(error_of([&] { x.cpu(); }), "a copy to other memory in a capture");
  EXPECT_EQ(error_of([&] { torch::ones({3}).to(test_device()); }), "a copy to other memory in a capture");
  EXPECT_EQ(error_of([&] { x.bernoulli_(0.5); }), "a random number in a capture");
  EXPECT_EQ(error_of([&] { device_.synchronize(); }), "stream in a capture");
  EXPECT_NE(error_of([&] { x.nonzero(); }), "");
}

TEST_F(TestDeviceGraph, refuses_to_replay_on_memory_that_was_freed) {
  std::optional<torch::Tensor> x = torch::ones({3}).to(test_device());
  torch::Tensor y;
  capture([&] { y = *x * 2; });
  graph_->replay();
  device_.synchronize();
  x.reset();
  EXPECT_THROW(graph_->replay(), CaptureError);
}

// What was queued before a replay comes before it, and what is queued after it behind it; nothing else is.
TEST_F(TestDeviceGraph, orders_replays_with_the_stream_they_are_queued_on) {
  torch::Tensor x = torch::ones({3}).to(test_device());
  torch::Tensor y;
  capture([&] { y = x * 2; });
  graph_->replay();
  const c10::StreamGuard guard(other_);
  EXPECT_THROW(y + 1, OrderViolation);
  EXPECT_THROW(x.fill_(2), OrderViolation);
  stream_order().take_violations();
  device_.synchronize();
}

}  // namespace
}  // namespace penstock::test::test_device_graph_test
