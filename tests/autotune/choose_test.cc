// The schedule "auto": what it may choose, and that it trains as fixed options do.
#include "penstock/autotune/choose.h"

#include <gtest/gtest.h>

#include "penstock/autotune/profile.h"
#include "penstock/base/error.h"
#include "penstock/pipeline/profiler.h"
#include "penstock/pipeline/schedule_cache.h"
#include "penstock/plan/cluster.h"
#include "penstock/plan/site.h"
#include "penstock/schedule/memory_limit.h"
#include "penstock/schedule/schedule.h"
#include "tests/autotune/auto_jobs.h"
#include "tests/autotune/slow_chain.h"
#include "tests/base/error_text.h"

namespace penstock::test::choose_test {
namespace {

TEST(ChooseByProfile, trains_as_the_same_fixed_options) {
  for (const AutoJob& job : auto_jobs()) {
    World world({.stages = 2, .replicas = job.replicas});
    EXPECT_EQ(difference_of(world, job), "");
  }
}

AutotuneOptions quick_sample() { return quick(torch::randn({8, 6}), torch::randn({8, 4})); }

AutoChoice chosen(World& world, Cell& network, const PipelineOptions& options) {
  return autotune_with_reasons(world, network, squared_error, options, quick_sample());
}

TEST(ChooseByProfile, leaves_annotated_layers_on_their_stages) {
  World world({.stages = 2});
  BranchedNetwork network({0, 1, 0, 1, 1});
  const PipelineOptions options = open_options();
  const AutoChoice choice = chosen(world, network, options);
  EXPECT_EQ(choice.options.partition, options.partition);
  EXPECT_EQ(choice.plan->stages, (StageLayers{{"a", "c"}, {"b", "add", "d", "e"}}));
  Pipeline pipeline(world, network, squared_error, choice.options);
  EXPECT_EQ(layers_by_stage(pipeline.stages()), choice.plan->stages);
  for (const Candidate& candidate : choice.planned->candidates) EXPECT_EQ(candidate.chunks, 1) << candidate.schedule;

  BranchedNetwork in_chunks({0, 1, 1, 2, 3});
  for (const Candidate& candidate : chosen(world, in_chunks, options).planned->candidates)
    EXPECT_EQ(candidate.chunks, 2) << candidate.schedule;
}

TEST(ChooseByProfile, refuses_annotations_that_do_not_fit) {
  World world({.stages = 2});
  BranchedNetwork three({0, 0, 0, 1, 2});
  PipelineOptions options = open_options();
  options.chunks = 1;
  EXPECT_TRUE(says(error_text<ScheduleError>([&] { chosen(world, three, options); }), "stage 2"));
}

TEST(ChooseByProfile, keeps_given_chunks) {
  World world({.stages = 2});
  BranchedNetwork network;
  PipelineOptions options = open_options();
  for (const int chunks : {1, 2}) {
    options.chunks = chunks;
    EXPECT_EQ(chosen(world, network, options).options.custom->stage_count(), 2 * chunks);
  }
  options.chunks = 4;
  EXPECT_TRUE(says(error_text<ScheduleError>([&] { chosen(world, network, options); }), "6 layers", "4 chunks"));
}

TEST(ChooseByProfile, stays_within_the_memory_limit) {
  World world({.stages = 2});
  BranchedNetwork network;
  PipelineOptions options = open_options();
  // The smallest allows one micro-batch of one stage at a time. Measured times decide which schedule that is.
  const double least = 1e-3;
  for (const double limit : {least, 0.75, 1.0, 1.5}) {
    options.memory_limit = TimesOf1F1B{limit};
    const Schedule schedule = *chosen(world, network, options).options.custom;
    EXPECT_NO_THROW(require_within_limit(schedule, TimesOf1F1B{limit})) << limit;
    if (limit == least) {
      EXPECT_EQ(validate(schedule).peak_activations, (std::vector<int>{1, 1}));
    }
  }
  options.memory_limit = TimesOf1F1B{least};
  options.chunks = 2;
  EXPECT_TRUE(says(error_text<ScheduleError>([&] { chosen(world, network, options); }),
                   "no schedule stays within a memory limit of 0.001 (times 1F1B's live micro-batches)",
                   "the smallest limit that would do is 1, with", "2 chunks per rank and 4 micro-batches"));
}

// GPipe keeps all micro-batches: under a memory limit nothing that is measured may.
TEST(ProfiledOptions, obey_the_memory_limit) {
  PipelineOptions base{.micro_batches = 8, .schedule = "auto"};
  for (const MemoryLimit& limit : {MemoryLimit(TimesOf1F1B{1}), MemoryLimit(BytesPerRank{1})})
    for (const int chunks : {1, 2})
      for (const ProfiledSteps& what : profiled_steps) {
        base.memory_limit = limit;
        const auto options = profiled_options(what, base, {.ranks = 2, .layers = 8, .chunks = chunks});
        if (!options) continue;
        const Schedule training = ScheduleCache({.options = *options, .ranks = 2}).training();
        const MemoryLimit needed = needed_memory_limit(training, TimesOf1F1B{});
        EXPECT_LE(needed, MemoryLimit(TimesOf1F1B{chunks == 1 ? 1 : 1.5})) << training.name;
        EXPECT_EQ(training.stage_count(), 2 * chunks);
      }
}

TEST(ProfiledOptions, split_interleaved_schedules_where_annotations_give_chunks) {
  const PipelineOptions base{.micro_batches = 4, .schedule = "auto"};
  const auto options = profiled_options(profiled_steps[1], base, {.ranks = 2, .layers = 8, .chunks = 2});
  for (const Order& order : options->custom->orders)
    for (const Instruction& instruction : order) EXPECT_NE(instruction.op(), Op::backward);
}

TEST(ChooseByProfile, measures_replicas_of_which_each_has_its_share) {
  World world({.stages = 2, .replicas = 2});
  BranchedNetwork network;
  const LayerCosts costs = profile(world, network, squared_error, open_options(), quick_sample());
  EXPECT_EQ(costs.samples, 4);
  EXPECT_EQ(costs.ranks, 2);
  PipelineOptions options = open_options();
  options.micro_batches = 0;
  EXPECT_LE(chosen(world, network, options).options.micro_batches, 4) << "a replica has four samples";
}

// The prediction knows nothing of the second pipeline's slow layers: measured steps decide.
TEST(ChooseByProfile, plans_with_given_costs) {
  World world({.stages = 2});
  BranchedNetwork network;
  AutotuneOptions how = quick_sample();
  LayerCosts costs = profile(world, network, squared_error, open_options(), how);
  for (LayerCost& layer : costs.layers) layer.forward = layer.name == "a" ? 1000 : 1;
  how.layer_costs = write_layer_costs(costs);
  how.comparison.finalists = 1;
  const AutoChoice choice = autotune_with_reasons(world, network, squared_error, open_options(), how);
  EXPECT_EQ(choice.plan->stages.front(), (std::vector<std::string>{"a"})) << "the slow layer is alone";
  EXPECT_EQ(choice.costs->layers, costs.layers);
  World alone({.stages = 1});
  EXPECT_TRUE(says(error_text<ConfigError>([&] { autotune(alone, network, squared_error, open_options(), how); }),
                   "for 2 pipeline ranks", "the world has 1"));
}

constexpr const char* unequal =
    R"({"penstock_cluster": 1, "time_unit": "ms", "kinds": {"new": {"speed": 1}, "old": {"speed": 0.25}},
  "nodes": [{"name": "n0", "kind": "new"}, {"name": "n1", "kind": "old"}],
  "links": {"inside": {"latency": 0}, "between": {"latency": 0}}})";

TEST(ChooseByProfile, gives_a_slow_rank_fewer_layers) {
  World world({.stages = 2});
  BranchedNetwork network;
  AutotuneOptions how = quick_sample();
  how.comparison.finalists = 1;
  how.cluster = unequal;
  LayerCosts costs = profile(world, network, squared_error, open_options(), how);
  EXPECT_EQ(costs.samples, 8);
  for (LayerCost& layer : costs.layers) layer.forward = layer.input_grad = layer.weight_grad = 1000;
  how.layer_costs = write_layer_costs(costs);
  const AutoChoice choice = autotune_with_reasons(world, network, squared_error, open_options(), how);
  EXPECT_EQ(choice.plan->stages.back().size(), 1U);
  EXPECT_EQ(choice.plan->devices, (std::vector<std::string>{"n0:0", "n1:0"}));
  World wide({.stages = 3});
  EXPECT_TRUE(says(error_text<ConfigError>([&] { autotune(wide, network, squared_error, open_options(), how); }),
                   "3 ranks", "2"));
}

// A step waits for 1.4 s and more.
TEST(ChooseByProfile, times_few_micro_batches_where_steps_are_long) {
  World world({.stages = 2});
  SlowChain network({{40, 40}, {40, 40}});
  PipelineOptions options = open_options(16);
  AutotuneOptions how = quick(torch::randn({32, 4}), torch::randn({32, 4}));
  how.profile.slowdown_under_load = false;
  const LayerCosts costs = profile(world, network, squared_error, options, how);
  EXPECT_EQ(costs.samples, 32);
  EXPECT_EQ(costs.micro_batch_size, 2);
  EXPECT_EQ(costs.micro_batches, std::vector<int>{16});
  for (const LayerCost& layer : costs.layers) {
    EXPECT_GE(layer.forward, 40);
    EXPECT_FALSE(layer.forward_cached.has_value()) << "chunks are left out";
  }
}

TEST(ProfiledTimes, are_those_of_devices_of_speed_one) {
  const Cluster cluster = read_cluster(unequal);
  LayerCosts costs;
  costs.time_unit = "ms";
  TimedRun run;
  run.plan.schedule = generate("1f1b", {.ranks = 2, .micro_batches = 2, .chunks = 1});
  run.plan.stages = {{"a"}, {"b"}};
  for (const char* name : {"b", "a"}) {
    run.steps.costs.layers.emplace_back();
    run.steps.costs.layers.back().name = name;
    run.steps.costs.layers.back().forward = run.steps.costs.layers.back().update = 8;
  }
  const auto layers = at_speed_one(run, Site(cluster, listed_placement(cluster, {2, 1}), costs)).steps.costs.layers;
  EXPECT_EQ(layers[0].forward, 2);
  EXPECT_EQ(layers[0].update, 2);
  EXPECT_EQ(layers[1].forward, 8);
}

TEST(StepComparison, takes_the_shortest_measured_steps) {
  World world({.stages = 2});
  const ComparisonOptions how{.finalists = 3, .budget_ms = 0};
  std::vector<int> calls(3, 0);
  const auto times = [&](std::size_t i) {
    ++calls[i];
    return i == 0 ? std::vector<double>{101, 300, 100} : std::vector<double>{i == 1 ? 70.0 : 70.5};
  };
  const StepComparison comparison = compare_steps(world, 3, how, times);
  EXPECT_EQ(comparison.best, 1U);
  EXPECT_EQ(comparison.step_ms, (std::vector<double>{100, 70, 70.5}));
  EXPECT_EQ(calls, (std::vector<int>{2, 5, 5})) << "what is clearly longer leaves after its second round";
}

TEST(StepComparison, one_slow_turn_decides_nothing) {
  World world({.stages = 1});
  const std::vector<double> step_ms{60, 50, 70};
  for (int slow = 0; slow < 9; ++slow) {
    int measurements = 0;
    const StepComparison comparison = compare_steps(
        world, 3, {}, [&](std::size_t i) { return std::vector{(measurements++ == slow ? 1.9 : 1) * step_ms[i]}; });
    EXPECT_EQ(comparison.best, 1U) << slow;
    EXPECT_LT(measurements, 20) << "the others leave nevertheless";
  }
}

TEST(StepComparison, measures_two_candidates_whatever_the_time) {
  World world({.stages = 2});
  std::vector<int> calls(4, 0);
  const auto times = [&](std::size_t i) {
    ++calls[i];
    return std::vector{i == 0 ? 102.0 : 100.0};
  };
  const StepComparison comparison = compare_steps(world, 4, {.most_ms = 0}, times);
  EXPECT_EQ(calls, (std::vector<int>{1, 1, 0, 0}));
  EXPECT_EQ(comparison.best, 0U) << "2 % say nothing after one round";
  EXPECT_EQ(comparison.step_ms, (std::vector<double>{102, 100, 0, 0}));
}

TEST(StepComparison, prefers_the_first_of_equally_short_steps) {
  World world({.stages = 1});
  const auto best_of = [&](std::vector<double> step_ms) {
    return compare_steps(world, step_ms.size(), {}, [&](std::size_t i) { return std::vector{step_ms[i]}; }).best;
  };
  EXPECT_EQ(best_of({70.5, 70}), 0U);
  EXPECT_EQ(best_of({71, 70}), 1U);
  EXPECT_EQ(best_of({100, 70.5, 70}), 1U);
}

// The second candidate is 4 % longer, and had the luck to be measured when the machine was fast.
TEST(StepComparison, does_not_follow_the_machines_speed) {
  World world({.stages = 1});
  const std::vector<double> speeds = {1, 1, 1.7, 1, 1.7, 1.7, 1.7, 1.7, 1, 1, 1.7, 1.7};  // by measurement
  std::size_t measurements = 0;
  const auto times = [&](std::size_t i) {
    const double speed = speeds[measurements++ % speeds.size()];
    return std::vector{speed * (i == 0 ? 50.0 : 52.0)};
  };
  EXPECT_EQ(compare_steps(world, 2, {.finalists = 2, .budget_ms = 0}, times).best, 0U);
}

TEST(ChooseByProfile, compares_steps_of_finalists) {
  World world({.stages = 2});
  SlowChain network({{5, 5}, {5, 5}});
  const AutoChoice choice = autotune_with_reasons(world, network, squared_error, open_options(),
                                                  quick(torch::randn({8, 4}), torch::randn({8, 4})));
  ASSERT_EQ(choice.planned->compared.size(), 2U);
  for (const ComparedCandidate& compared : choice.planned->compared) EXPECT_GT(compared.step_ms, 0);
  EXPECT_EQ(choice.planned->candidates.front().prediction, choice.plan->prediction);
  EXPECT_EQ(choice.planned->compared.front().candidate.prediction, choice.plan->prediction);
}

}  // namespace
}  // namespace penstock::test::choose_test
