// A rank that throws, stalls or loses a message: every rank throws an error that names it, and none hangs.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/world/rank_threads.h"
#include "tests/base/error_text.h"
#include "tests/runtime/fragile.h"
#include "tests/runtime/small_job.h"
#include "tests/support/fault_injection.h"
#include "tests/support/temporary_folder.h"

namespace penstock::test::no_hang_test {
namespace {

/// Trains until a step fails, and returns the error text.
std::string failure_of(World& world, Cell& network) {
  return test::error_text<Failure>([&] {
    Pipeline pipeline(world, network, cross_entropy, {.micro_batches = 4});
    pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
    for (int step = 0; step < 3; ++step)
      pipeline.train_step(torch::ones({8, 12}), torch::zeros({8}, torch::kInt64)).loss();
  });
}

TEST(NoHang, a_rank_that_throws_is_named) {
  std::atomic<int> calls{0};
  Fragile network([&](bool is_forward) {
    if (is_forward && ++calls == 6) throw std::runtime_error("the layer broke");
  });
  World world({.stages = 3});
  const std::string message = failure_of(world, network);
  EXPECT_NE(message.find("rank 1 (stage 1) failed at 1F1 of step 1: the layer broke"), std::string::npos) << message;
}

TEST(NoHang, every_failing_step_throws) {
  World world({.stages = 3});
  Fragile network([](bool) { throw std::runtime_error("the layer broke"); });
  Pipeline pipeline(world, network, cross_entropy, {.micro_batches = 2});
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  const auto step = [&] { pipeline.train_step(torch::ones({8, 12}), torch::zeros({8}, torch::kInt64)).loss(); };
  EXPECT_THROW(step(), RankFailure);
  EXPECT_THROW(step(), RankFailure);
}

TEST(NoHang, a_rank_that_stalls_is_named_and_not_waited_for) {
  auto released = std::make_shared<std::atomic<bool>>(false);
  Fragile network([released, calls = std::make_shared<std::atomic<int>>(0)](bool is_forward) {
    if (is_forward && ++*calls == 2)
      while (!*released) std::this_thread::yield();
  });
  const auto begin = std::chrono::steady_clock::now();
  {
    World world({.stages = 3, .stall_limit = std::chrono::milliseconds(300)});
    const std::string message = failure_of(world, network);
    EXPECT_NE(message.find("from rank 1, which is at 1F1"), std::string::npos) << message;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  *released = true;
}

/// A pipeline of three ranks whose updates do not return before the world is gone.
class EndlessUpdates {
 public:
  explicit EndlessUpdates(std::optional<std::chrono::milliseconds> stall_limit = std::nullopt)
      : world({.stages = 3, .stall_limit = stall_limit}) {
    pipeline.optimize_with([state = released_.state](const std::vector<torch::Tensor>& parameters) {
      return std::make_shared<Update>(parameters, state);
    });
  }

  StepResult train_step() { return pipeline.train_step(torch::ones({8, 12}), torch::zeros({8}, torch::kInt64)); }
  void wait_until_all_update() const {
    while (released_.state->ranks_inside < world.size()) std::this_thread::yield();
  }

 private:
  struct State {
    std::atomic<int> ranks_inside{0};
    std::atomic<bool> released{false};
  };
  class Update : public torch::optim::SGD {
   public:
    Update(const std::vector<torch::Tensor>& parameters, std::shared_ptr<State> state)
        : SGD(parameters, 0.1), state_(std::move(state)) {}
    torch::Tensor step(LossClosure closure = nullptr) override {
      ++state_->ranks_inside;
      while (!state_->released) std::this_thread::yield();
      return SGD::step(closure);
    }

   private:
    std::shared_ptr<State> state_;
  };
  struct Released {
    ~Released() { state->released = true; }
    std::shared_ptr<State> state = std::make_shared<State>();
  };

  Released released_;  // first, so that it ends last
  Fragile network_{[](bool) {}};

 public:
  World world;
  Pipeline pipeline{world, network_, cross_entropy, {.micro_batches = 4}};
};

TEST(NoHang, a_stalled_rank_that_no_other_rank_waits_for_is_named_and_not_waited_for) {
  EndlessUpdates job(std::chrono::milliseconds(300));
  const auto step = job.train_step();
  const std::string message = test::error_text<RankFailure>([&] { step.wait(); });
  EXPECT_TRUE(message.starts_with("the program waits for rank ")) << message;
  EXPECT_NE(message.find("STEP in step 0 since "), std::string::npos) << message;
  EXPECT_TRUE(message.ends_with(" s (no progress for 0.3 s, the stall limit)")) << message;
}

TEST(NoHang, a_pipeline_of_a_failed_world_ends_although_a_rank_is_still_in_an_earlier_step) {
  EndlessUpdates job;  // without a stall limit
  for (int step = 0; step < 2; ++step) job.train_step();
  job.wait_until_all_update();
  job.world.fail("the program gives up");
}

void expect_failure(const std::function<void()>& wait) {
  EXPECT_EQ(test::error_text<RankFailure>([&] { wait(); }), "the program failed: the program gives up");
}

TEST(NoHang, a_wait_for_a_step_of_a_failed_world_ends_although_a_rank_is_still_in_it) {
  EndlessUpdates job;  // without a stall limit
  const auto step = job.train_step();
  job.wait_until_all_update();
  job.world.fail("the program gives up");
  expect_failure([&] { step.wait(); });
}

TEST(NoHang, outputs_of_an_inference_behind_a_rank_that_hangs_are_not_waited_for_after_a_failure) {
  EndlessUpdates job;  // without a stall limit
  job.train_step();
  job.wait_until_all_update();
  const auto inference = job.pipeline.infer(torch::ones({8, 12}));
  job.world.fail("the program gives up");
  expect_failure([&] { inference.outputs(); });
}

TEST(NoHang, work_behind_a_rank_that_hangs_is_not_waited_for_after_a_failure) {
  EndlessUpdates job;  // without a stall limit
  job.train_step();
  job.wait_until_all_update();
  job.world.fail("the program gives up");
  expect_failure([&] { ranks_of(job.world).run_on_local_ranks([](const RankContext&) {}); });
}

TEST(NoHang, a_checkpoint_behind_a_rank_that_stalls_is_not_waited_for) {
  const TemporaryFolder folder("no_hang");
  EndlessUpdates job(std::chrono::milliseconds(300));
  const auto saver = job.pipeline.checkpoints({.folder = folder.string()});
  job.train_step();
  job.wait_until_all_update();
  saver->save({});
  EXPECT_THROW(saver->finish(), RankFailure);
}

TEST(NoHang, a_lost_message_is_named) {
  TransportOptions transport;
  transport.deadline = std::chrono::milliseconds(300);
  auto endpoints = open_threads(3, transport);
  FaultPlan plan;
  plan.drop = {12};
  endpoints[0] = with_faults(std::move(endpoints[0]), plan);
  World world(std::move(endpoints), {.stages = 3});
  Fragile network([](bool) {});
  const std::string message = failure_of(world, network);
  // Any of the ranks that wait for each other may fail first; each error contains all positions.
  EXPECT_TRUE(test::says(message, "rank 1, which is at 1F1", "no progress for 0.3 s")) << message;
}

// Messages that overtake each other change nothing.
TEST(NoHang, delayed_messages_change_nothing) {
  JobOptions options;
  options.world.stages = 3;
  options.pipeline = {.micro_batches = 4, .seed = 5};
  const JobOutcome straight = run_small_job(options);
  auto endpoints = open_threads(3, {});
  for (auto& endpoint : endpoints) {
    FaultPlan plan;
    plan.delay_odd = FaultPlan::Delay{.later_sends = 2, .at_most = std::chrono::milliseconds(5)};
    endpoint = with_faults(std::move(endpoint), plan);
  }
  World world(std::move(endpoints), options.world);
  EXPECT_EQ(run_small_job(world, options).losses, straight.losses);
}

}  // namespace
}  // namespace penstock::test::no_hang_test
