// Timing of layers in running pipelines, and the choices of the schedule "auto". Slow layers are made by waiting.
#include "penstock/autotune/autotune.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/autotune/choose.h"
#include "penstock/autotune/profile.h"
#include "penstock/base/error.h"
#include "penstock/kernels/kernels.h"
#include "penstock/pipeline/profiler.h"
#include "penstock/schedule/schedule.h"
#include "penstock/world/host_memory.h"
#include "tests/autotune/auto_jobs.h"
#include "tests/autotune/slow_chain.h"
#include "tests/base/error_text.h"

namespace penstock::test::profile_test {
namespace {

AutotuneOptions quick_sample(bool slowdown_under_load = true) {
  AutotuneOptions how = quick(torch::randn({8, 4}), torch::randn({8, 4}));
  how.profile.slowdown_under_load = slowdown_under_load;
  how.comparison.finalists = 1;
  return how;
}

TEST(TimeLayers, measures_forward_and_backward_of_each_layer) {
  SlowChain chain({{0, 0}, {30, 0}, {0, 60}, {0, 0}});
  World world({.stages = 2});
  Pipeline pipeline(world, chain, squared_error, {.micro_batches = 2, .partition = "c"});
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  const TimedSteps steps = Profiler(pipeline).time_layers({torch::randn({4, 4})}, torch::randn({4, 4}), 2);
  const std::vector<LayerCost>& layers = steps.costs.layers;
  ASSERT_EQ(layers.size(), 4U);
  EXPECT_GE(layers[1].forward, 30);
  EXPECT_LT(layers[1].input_grad, 30);
  EXPECT_GE(layers[2].input_grad, 60);
  EXPECT_LT(layers[2].forward, 60);
  EXPECT_LT(layers[0].forward + layers[0].input_grad, 30);
  EXPECT_EQ(layers[0].parameter_bytes, 32) << "with gradients";
  EXPECT_EQ(layers[0].boundary_bytes, 32);
  EXPECT_EQ(steps.costs.ranks, 2);
  EXPECT_EQ(steps.costs.samples, 2) << "one for each micro-batch";
}

TimedSteps with_times(double time, double step) {
  TimedSteps steps{.costs = {}, .step = step};
  steps.costs.time_unit = "ms";
  steps.costs.link.latency = 0.25;
  steps.costs.instruction_overhead = time / 10;
  steps.costs.cache_bytes = 1 << 24;
  steps.costs.layers = {{"block 1", time, 1.0 / 3, 2, 40, 50, 40}, {"b", 3, time, 4, 40, 50, 40}};
  steps.costs.layers[1].update = time / 7;
  return steps;
}

TEST(TimedSteps, round_trip_through_their_text) {
  const TimedSteps steps = with_times(0.1, 12.3);
  const TimedSteps read = timed_steps_from(to_text(steps));
  EXPECT_EQ(read.costs, steps.costs);
  EXPECT_EQ(read.step, steps.step);
}

TEST(TimedSteps, median_of_several_runs_is_the_median_of_every_time) {
  const TimedSteps middle = median_of(std::vector{with_times(5, 30), with_times(9, 10), with_times(7, 20)});
  EXPECT_EQ(middle.costs, with_times(7, 20).costs);
  EXPECT_EQ(middle.step, 20);
}

// The slow layer gets a rank of its own; the pipeline uses the choice of "auto", with the results of any other
// schedule.
TEST(ScheduleAuto, partitions_at_the_slow_layer) {
  for (const bool slow_first : {true, false}) {
    SlowChain chain(slow_first ? std::vector<Waits>{{20, 20}, {}, {}} : std::vector<Waits>{{}, {}, {20, 20}});
    World world({.stages = 2});
    PipelineOptions options = open_options(2);
    const AutoChoice choice = choose_by_profile(world, chain, squared_error, options, quick_sample());
    const auto& stages = choice.plan->stages;
    const std::vector<std::string> alone{slow_first ? "a" : "c"};
    EXPECT_NE(std::find(stages.begin(), stages.end(), alone), stages.end());
    EXPECT_TRUE(choice.costs.has_value());
  }
}

// The slowdown under load is measured: two ranks that only wait do not slow each other down. The ranks share the cache.
TEST(Profile, measures_the_machine) {
  SlowChain chain({{20, 20}, {20, 20}});
  World world({.stages = 2});
  const LayerCosts costs = profile(world, chain, squared_error, open_options(2), quick_sample());
  EXPECT_NE(costs.slowdown_under_load, 1);
  EXPECT_NEAR(costs.slowdown_under_load, 1, 0.5);
  EXPECT_EQ(static_cast<std::int64_t>(costs.cache_bytes), cache_share(2));
  EXPECT_GE(cache_share(1), cache_share(2));
  EXPECT_FALSE(costs.layers[0].forward_cached) << "two layers make no two chunks for each of two ranks";
  const LayerCosts quicker =
      profile(world, chain, squared_error, open_options(2), quick_sample(/*slowdown_under_load=*/false));
  EXPECT_EQ(quicker.slowdown_under_load, 1);
  EXPECT_THROW(costs_of({}, 8), ConfigError);
}

TEST(Profile, times_small_chunks_where_the_layers_suffice) {
  SlowChain chain({{10, 0}, {0, 10}, {0, 0}, {0, 0}});
  World world({.stages = 2});
  const LayerCosts costs =
      profile(world, chain, squared_error, open_options(2), quick_sample(/*slowdown_under_load=*/false));
  EXPECT_GE(costs.layers[0].forward_cached.value_or(0), 10);
  EXPECT_GE(costs.layers[1].input_grad_cached.value_or(0), 10);
}

TEST(ScheduleAuto, keeps_the_measured_kernels) {
  if (!has_cpu_kernels()) GTEST_SKIP() << "this build has no tuned kernels";
  SlowChain chain({{}, {}});
  World world({.stages = 2});
  PipelineOptions options = open_options(2);
  options.kernels = Kernels::tuned;
  const AutoChoice choice = choose_by_profile(world, chain, squared_error, options, quick_sample());
  EXPECT_EQ(choice.plan->kernels.substr(0, 6), "tuned\n");
  EXPECT_EQ(choice.options.kernel_selection, choice.plan->kernels);
}

TEST(ScheduleAuto, rejects_options_that_it_cannot_choose) {
  SlowChain chain({{}, {}});
  World world({.stages = 2});
  const auto complaint_of = [&](const std::function<void(PipelineOptions&)>& change) {
    PipelineOptions options = open_options(2);
    change(options);
    return error_text<ConfigError>([&] { autotune(world, chain, squared_error, options, quick_sample()); });
  };
  const AutotuneOptions without_targets{.sample = torch::randn({8, 4})};
  EXPECT_TRUE(
      says(error_text<ConfigError>([&] { autotune(world, chain, squared_error, open_options(2), without_targets); }),
           "sample_targets", "1 and 0 tensors"));
  EXPECT_TRUE(says(complaint_of([](auto& o) { o.custom = generate("1f1b", {.ranks = 2, .micro_batches = 2}); }),
                   "PipelineOptions::custom"));
  EXPECT_TRUE(says(complaint_of([](auto& o) { o.partition = "uniform"; }), "'uniform'"));
  EXPECT_TRUE(says(error_text<ConfigError>([&] { Pipeline(world, chain, squared_error, open_options(2)); }),
                   "schedule 'auto'", "autotune()"));
}

TEST(HostLinks, the_shortest_trips_give_latency_and_bandwidth) {
  // A long message takes 50.5 ms each way, of which 0.5 are those of a short one.
  const LinkSpeed speed = speed_of({{0, 1.5}, {0, 1}, {0, 9}}, {{5000, 101}, {5000, 140}});
  EXPECT_DOUBLE_EQ(speed.latency, 0.5);
  EXPECT_DOUBLE_EQ(speed.bytes_per_unit, 100);
}

TEST(HostLinks, bytes_cost_nothing_where_a_long_message_takes_no_longer) {
  EXPECT_EQ(speed_of({{4, 1}}, {{5000, 1}}), (LinkSpeed{.bytes_per_unit = 0, .latency = 0.5}));
}

TEST(HostLinks, one_host_has_none) {
  World world({.stages = 2});
  EXPECT_FALSE(speed_between_hosts(world));
}

}  // namespace
}  // namespace penstock::test::profile_test
