// The state after a failure is that of the last complete step: of all stages, with parameters and buffers.
#include <gtest/gtest.h>

#include <future>

#include "penstock/runtime/profiler.h"
#include "penstock/runtime/weight_average.h"
#include "tests/runtime/faulty_training.h"

namespace penstock::test::last_step_test {
namespace {

const WorldOptions three{.stages = 3};

/// Trains two steps; the third one fails at `event` after `successes` more.
void expect_state_of_two_steps(FaultyJob& job, const std::string& event, int successes) {
  for (int step = 0; step < 2; ++step) job.step(step).wait();
  job.faults->fail(event, successes);
  EXPECT_THROW(job.step(2).wait(), RankFailure);
  EXPECT_EQ(differences(job.pipeline.state(), plain_state(job.initial, 2)), "");
  EXPECT_EQ(differences(job.pipeline.state(), plain_state(job.initial, 2)), "") << "a second time";
}

std::string error_of_state(FaultyJob& job) {
  try {
    job.pipeline.state();
  } catch (const RankFailure& error) {
    return error.what();
  }
  return "no failure";
}

TEST(LastStep, the_state_without_a_failure_is_that_of_the_plain_loop) {
  for (const bool keep : {false, true}) {
    FaultyJob job(three, {.keep_last_step = keep});
    for (int step = 0; step < 3; ++step) job.step(step).wait();
    EXPECT_EQ(differences(job.pipeline.state(), plain_state(job.initial, 3)), "");
  }
}

// The B of stage 0 fails when the later stages have updated their parameters.
TEST(LastStep, survives_a_failure_in_backward_between_the_updates_of_stages) {
  for (const char* schedule : {"1f1b", "gpipe", "zb-h1"}) {
    FaultyJob job(three, {.schedule = schedule, .keep_last_step = true});
    expect_state_of_two_steps(job, "backward", 3);
  }
  FaultyJob job(three, {});
  job.step(0).wait();
  job.faults->fail("backward", 3);
  EXPECT_THROW(job.step(1).wait(), RankFailure);
  for (int i = 0; i < 2; ++i) {
    const std::string error = error_of_state(job);
    EXPECT_NE(error.find("update 2 is not complete on all stages"), std::string::npos) << error;
    EXPECT_NE(error.find("keep_last_step (--keep-last-step)"), std::string::npos) << error;
    EXPECT_NE(error.find("broken at backward"), std::string::npos) << error;
  }
}

TEST(LastStep, survives_an_optimiser_that_fails_half_way) {
  for (const int stages : {1, 3})
    for (const char* parameter : {"a.weight", "a.bias", "norm_b.weight", "c.weight", "norm_c.bias"})
      for (const std::optional<double> clip_norm : {std::optional<double>(), std::optional<double>(1e9)}) {
        SCOPED_TRACE(say(stages, " stages, ", parameter, ", clip ", clip_norm.has_value()));
        // Clipping at a norm that is never reached; stages then update after all of them have their gradients.
        FaultyJob job({.stages = stages}, {.clip_norm = clip_norm, .keep_last_step = true});
        expect_state_of_two_steps(job, parameter, 0);
      }
  FaultyJob job({.stages = 1}, {});
  job.faults->fail("a.bias", 0);
  EXPECT_THROW(job.step(0).wait(), RankFailure);
  EXPECT_NE(error_of_state(job).find("update 1 is not complete"), std::string::npos) << error_of_state(job);
}

// Before any update; the running statistics have changed.
TEST(LastStep, needs_no_copies_of_parameters_where_no_stage_has_updated) {
  FaultyJob job(three, {.schedule = "gpipe", .clip_norm = 1e9});
  expect_state_of_two_steps(job, "backward", 1);
}

// Stage 0 is in the forward pass of the next step when the last stage's update fails.
TEST(LastStep, is_not_changed_by_the_step_behind) {
  for (const bool freezes : {false, true}) {
    FaultyJob job(three, {.keep_last_step = true});
    State frozen_state;
    if (freezes) {
      for (const char* layer : {"a", "norm_a"}) job.pipeline.freeze(layer);
      FaultyJob whole(three, {});
      for (const char* layer : {"a", "norm_a"}) whole.pipeline.freeze(layer);
      for (int step = 0; step < 2; ++step) whole.step(step).wait();
      frozen_state = whole.pipeline.state();
    }
    for (int step = 0; step < 2; ++step) job.step(step).wait();
    int forwards = 0;  // of stage 0
    std::promise<void> is_ahead;
    job.faults->actions["forward"] = [&] {
      if (++forwards == 6) is_ahead.set_value();
    };
    job.faults->actions["norm_c.weight"] = [&] { is_ahead.get_future().wait(); };
    job.faults->fail("norm_c.weight", 0);
    const StepResult failing = job.step(2), behind = job.step(3);
    EXPECT_THROW(failing.wait(), RankFailure);
    EXPECT_THROW(behind.wait(), RankFailure);
    EXPECT_EQ(differences(job.pipeline.state(), freezes ? frozen_state : plain_state(job.initial, 2)), "") << freezes;
  }
}

// The rank would go on with the next step, which waits for nobody.
TEST(LastStep, is_not_changed_by_the_step_behind_on_a_single_rank) {
  FaultyJob job({.stages = 1}, {.keep_last_step = true});
  for (int step = 0; step < 2; ++step) job.step(step).wait();
  job.faults->fail("c.bias", 0);
  const StepResult failing = job.step(2), behind = job.step(3);
  EXPECT_THROW(failing.wait(), RankFailure);
  EXPECT_THROW(behind.wait(), RankFailure);
  EXPECT_EQ(differences(job.pipeline.state(), plain_state(job.initial, 2)), "");
}

// The parts of one rank wait for nobody.
TEST(LastStep, is_not_changed_by_the_later_parts_of_a_failed_step) {
  FaultyJob job({.stages = 1}, {});
  job.step(0).wait();
  job.faults->fail("backward", 1);
  const FaultyBatch batch(1);
  const StepResult failing = job.pipeline.forward_backward(batch.inputs, batch.targets);
  try {
    job.pipeline.step();
  } catch (const RankFailure&) {  // the failure may be known already
  }
  EXPECT_THROW(failing.wait(), RankFailure);
  EXPECT_EQ(differences(job.pipeline.state(), plain_state(job.initial, 1)), "");
}

TEST(LastStep, a_cancelled_step_leaves_running_statistics_as_they_were) {
  FaultyJob job(three, {});
  job.step(0).wait();
  for (int at = 0; at < 4; ++at) {
    job.faults->fail("forward", at);
    EXPECT_THROW(job.step(7).loss(), StepFailure);
    EXPECT_EQ(differences(job.pipeline.state(), plain_state(job.initial, 1)), "") << at;
  }
  job.step(1).wait();
  EXPECT_EQ(differences(job.pipeline.state(), plain_state(job.initial, 2)), "");
}

TEST(LastStep, of_replicas_is_that_of_the_first) {
  FaultyJob whole({.stages = 3, .replicas = 2}, {});
  for (int step = 0; step < 2; ++step) whole.step(step).wait();
  for (const int successes : {0, 1}) {
    FaultyJob job({.stages = 3, .replicas = 2}, {.keep_last_step = true});
    for (int step = 0; step < 2; ++step) job.step(step).wait();
    job.faults->fail("b.bias", successes);
    EXPECT_THROW(job.step(2).wait(), RankFailure);
    EXPECT_EQ(differences(job.pipeline.state(), whole.pipeline.state()), "") << successes;
  }
}

// With an average of the weights, and gradients accumulated over two calls.
TEST(LastStep, of_accumulated_gradients_is_that_of_the_last_update) {
  FaultyJob whole(three, {});
  whole.pipeline.update_every(2);
  for (int call = 0; call < 4; ++call) whole.step(call).wait();
  for (const char* event : {"backward", "b.bias"}) {
    FaultyJob job(three, {.keep_last_step = true});
    WeightAverage weights(job.pipeline, 0.5);
    job.pipeline.update_every(2);
    for (int call = 0; call < 5; ++call) job.step(call).wait();
    job.faults->fail(event, 0);
    EXPECT_THROW(
        {
          job.step(5).wait();
          Profiler(job.pipeline).trace();
        },
        RankFailure);
    EXPECT_EQ(differences(job.pipeline.state(), whole.pipeline.state()), "") << event;
  }
}

// fp16: the update of step 1 is skipped, because a gradient is infinite.
TEST(LastStep, knows_skipped_updates) {
  const auto train = [](FaultyJob& job) {
    auto step = std::make_shared<int>(0);
    job.pipeline.add_gradient_hook([step](const std::string&, const torch::Tensor& gradient) {
      return *step == 1 ? gradient / 0 : torch::Tensor();
    });
    for (; *step < 2; ++*step) EXPECT_EQ(job.step(*step).update_skipped(), *step == 1);
  };
  FaultyJob whole(three, {.precision = Precision::fp16}),
      job(three, {.precision = Precision::fp16, .keep_last_step = true});
  train(whole);
  train(job);
  job.faults->fail("norm_c.weight", 0);
  EXPECT_THROW(job.step(2).wait(), RankFailure);
  EXPECT_EQ(differences(job.pipeline.state(), whole.pipeline.state()), "");
}

// Freezing and loading between steps; ties over stages.
TEST(LastStep, follows_what_the_program_changes_between_steps) {
  FaultyJob other(three, {});
  other.step(5).wait();
  const State loaded = other.pipeline.state();
  FaultyJob job(three, {.keep_last_step = true});
  job.step(0).wait();
  job.pipeline.freeze("c");
  job.pipeline.load_state(loaded);
  job.faults->fail("norm_c.weight", 0);
  EXPECT_THROW(job.step(1).wait(), RankFailure);
  EXPECT_EQ(differences(job.pipeline.state(), loaded), "");
}

/// The first and the last stage share a matrix.
struct Tied : Cell {
  explicit Tied(std::shared_ptr<Faults> faults) : faults_(std::move(faults)) {
    a.pipeline_stage = 0;
    b.pipeline_stage = 1;
    c.pipeline_stage = 2;
    c.tie("weight", a, "weight");
  }
  Layer a = add("a", [] { return torch::nn::Linear(12, 12); });
  Layer b = add("b", [] { return torch::nn::Linear(12, 12); });
  Layer c = add("c", [] { return torch::nn::Linear(12, 12); });
  Value forward(Value x) override { return c(b(a(x))); }

 private:
  std::shared_ptr<Faults> faults_;
};

TEST(LastStep, of_tied_parameters_is_the_owners) {
  const auto faults = std::make_shared<Faults>();
  const auto train = [&](Pipeline& pipeline, int steps) {
    pipeline.optimize_with(OptimizerFactory([&](const std::vector<NamedParameter>& parameters) {
      return std::make_unique<FaultyOptimizer>(parameters, faults);
    }));
    for (int step = 0; step < steps; ++step) {
      const FaultyBatch batch(step);
      pipeline.train_step(batch.inputs, batch.targets).wait();
    }
  };
  World world(three);
  Tied network(faults);
  Pipeline whole(world, network, cross_entropy, {.micro_batches = 4});
  train(whole, 2);
  const State expected = whole.state();
  for (const char* parameter : {"a.weight", "b.bias", "c.bias"}) {
    World own_world(three);
    Pipeline pipeline(own_world, network, cross_entropy, {.micro_batches = 4, .keep_last_step = true});
    train(pipeline, 2);
    faults->fail(parameter, 0);
    const FaultyBatch batch(2);
    EXPECT_THROW(pipeline.train_step(batch.inputs, batch.targets).wait(), RankFailure);
    EXPECT_EQ(differences(pipeline.state(), expected), "") << parameter;
  }
}

}  // namespace
}  // namespace penstock::test::last_step_test
