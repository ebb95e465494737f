#include "penstock/plan/planner.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "penstock/base/error.h"
#include "penstock/plan/layer_sums.h"
#include "penstock/plan/partition.h"
#include "penstock/plan/plan_report.h"
#include "penstock/schedule/memory_limit.h"
#include "penstock/schedule/schedule.h"
#include "tests/base/error_text.h"
#include "tests/plan/small_costs.h"

namespace penstock::planner_test {
namespace {

double most(const std::vector<double>& values) { return *std::max_element(values.begin(), values.end()); }

/// The plan for one schedule.
Plan planned_with(const char* schedule, const LayerCosts& costs, WeightGradients mode = WeightGradients::stream) {
  return make_plan(costs, {.schedules = {schedule}, .weight_gradients = mode}).plan;
}

Stages stages_of(const Partition& partition) {
  Stages stages;
  for (std::size_t layer = 0; layer < partition.size(); ++layer) {
    if (layer == 0 || partition[layer] != partition[layer - 1]) stages.push_back({static_cast<int>(layer), 0});
    stages.back().end = static_cast<int>(layer) + 1;
  }
  return stages;
}

/// The time and the memory of a schedule with equal numbers of layers per stage, that is, without a planner.
struct Fixed {
  double makespan = 0;
  double bytes = 0;
};

Fixed uniform(const LayerCosts& costs, const ScheduleGenerator& generator, int micro_batches) {
  const LayerSums sums(costs, micro_batches);
  const ScheduleShape shape{costs.ranks, micro_batches, generator.default_chunks};
  std::vector<LayerSize> layers(costs.layers.size());
  const Stages stages = stages_of(partition_uniformly(layers, shape.ranks * shape.chunks));
  const std::vector<Rank> placement = generate(generator.name, shape).rank_of_stage;
  const StageCosts of_stages = stage_costs(sums, placement, stages);
  const Schedule schedule = generate(generator.name, shape, {.costs = of_stages, .memory_limit = TimesOf1F1B{1}});
  return {simulate(schedule, of_stages).makespan, most(memory_bytes(sums, schedule, stages))};
}

/// The memory of the fullest rank, counted instruction by instruction.
double most_bytes_counted(const LayerCosts& costs, const Plan& plan) {
  const LayerSums sums(costs, plan.schedule.micro_batches);
  Stages stages;
  for (const auto& names : plan.stages) {
    const int begin = stages.empty() ? 0 : stages.back().end;
    stages.push_back({begin, begin + static_cast<int>(names.size())});
  }
  double peak = 0;
  for (std::size_t rank = 0; rank < plan.schedule.orders.size(); ++rank) {
    double held = 0;
    for (std::size_t s = 0; s < stages.size(); ++s)
      if (plan.schedule.rank_of_stage[s].index() == rank) held += sums.parameter_bytes(stages[s]);
    peak = std::max(peak, held);
    for (const Instruction& instruction : plan.schedule.orders[rank]) {
      const double context = sums.activation_bytes(stages[instruction.stage().index()]);
      if (instruction.op() == Op::forward) held += context;
      peak = std::max(peak, held);
      if (instruction.op() == Op::backward) held -= context;
      if (instruction.op() == Op::input_grad) held -= context * (1 - costs.weight_share);
      if (instruction.op() == Op::weight_grad) held -= context * costs.weight_share * instruction.micro_batch_count();
    }
  }
  return std::ceil(peak);
}

TEST(Planner, equal_layers_are_partitioned_evenly) {
  const Plan plan = planned_with("1f1b", even_layers());
  EXPECT_EQ(plan.prediction.makespan, (4 + 1) * 12);
  EXPECT_EQ(plan.prediction.memory_bytes, (std::vector<double>{400 + 2 * 40, 400 + 40}));
  EXPECT_EQ(plan.prediction.peak_activations, (std::vector<double>{2, 1}));
  EXPECT_EQ(plan.stages[1], (std::vector<std::string>{"layer4", "layer5", "layer6", "layer7"}));
  EXPECT_EQ(plan.schedule, generate("1f1b", {.ranks = 2, .micro_batches = 4}));
  EXPECT_EQ(plan.time_unit, "ms");
  EXPECT_EQ(plan.costs, fingerprint(even_layers()));
}

TEST(Planner, the_overhead_of_an_instruction_does_not_depend_on_the_micro_batch) {
  LayerCosts costs = even_layers();
  costs.instruction_overhead = 1;
  costs.micro_batches = {2};  // with 8 samples each, twice as large as measured
  const Plan plan = planned_with("gpipe", costs);
  EXPECT_EQ(plan.prediction.makespan, (2 + 1) * (2 * 12 + 2));
  EXPECT_EQ(plan.prediction.memory_bytes[0], 400 + 2 * 2 * 40);
}

TEST(Planner, many_small_instructions_are_fused) {
  LayerCosts costs = even_layers();
  costs.instruction_overhead = 1;
  const Planned planned = make_plan(costs, {.schedules = {"gpipe"}});
  EXPECT_EQ(planned.plan.weight_gradients, WeightGradients::fused);
  EXPECT_EQ(planned.plan.schedule, fuse_w(generate("gpipe", {.ranks = 2, .micro_batches = 4})));
}

// A stage with 400 bytes of gradients has B's that take 8, of which W's access to memory takes 8/3. Half of the
// gradients stay in a cache of 200 bytes, so that all B's but the first save half of that.
TEST(Planner, consecutive_ws_of_a_stage_find_gradients_in_the_cache) {
  LayerCosts costs = even_layers();
  for (LayerCost& layer : costs.layers) {
    layer.weight_grad_fused = 0.5;
    layer.update = 1;
  }
  const auto gpipe_takes = [&] { return planned_with("gpipe", costs).prediction.makespan; };
  EXPECT_EQ(gpipe_takes(), 5 * 12 + 4);
  costs.cache_bytes = 200;
  EXPECT_DOUBLE_EQ(gpipe_takes(), 5 * 12 + 4 - 3 * 4.0 / 3);
  costs.cache_bytes = 1e6;
  EXPECT_DOUBLE_EQ(gpipe_takes(), 5 * 12 + 4 - 3 * 8.0 / 3);
  for (LayerCost& layer : costs.layers) layer.update = 0.25;
  EXPECT_DOUBLE_EQ(gpipe_takes(), 5 * 12 + 1 - 3 * 1) << "no more than the update";
}

// F and I were measured on ranks that run all of their layers, with 200 bytes of parameters, of which half stay in the
// cache. With two chunks of 100 bytes each, all of them do. Four instructions of a stage follow each other.
TEST(Planner, small_stages_find_their_parameters_in_the_cache) {
  LayerCosts costs = even_layers();
  const auto predicted = [&](int chunks) {
    const Planned planned = make_plan(costs, {.schedules = {"looped-bfs"}, .weight_gradients = WeightGradients::fused});
    for (const Candidate& candidate : planned.candidates)
      if (candidate.chunks == chunks) return candidate.prediction.makespan;
    return 0.0;
  };
  for (LayerCost& layer : costs.layers) layer.update = 1;
  const double large = predicted(1), small = predicted(2);
  for (LayerCost& layer : costs.layers) {
    layer.forward_cached = 0.5;
    layer.input_grad_cached = 0.75;
  }
  EXPECT_EQ(predicted(2), small) << "no cache is known of";
  costs.cache_bytes = 100;
  EXPECT_EQ(predicted(1), large);
  // In each group of four, all but the first of a rank's 8 F's and 8 I's save 1/2 and 1/4 for each of two layers.
  EXPECT_NEAR(predicted(2), small - 6 * (1 + 0.5), 1.5);
  EXPECT_LT(predicted(2), small - 6);
}

TEST(Planner, a_slow_link_moves_the_boundary) {
  LayerCosts costs = even_layers();
  for (LayerCost& layer : costs.layers) layer.boundary_bytes = 1000;
  costs.layers[2].boundary_bytes = 1;
  EXPECT_EQ(make_plan(costs, {.schedules = {"1f1b"}}).plan.stages[0].size(), 3u);
}

// The first two layers have expensive single W's and are a stage of their own then, but not with a fused W.
TEST(Planner, the_cost_of_a_fused_w_moves_the_boundary) {
  LayerCosts costs = even_layers();
  for (LayerCost& layer : costs.layers) layer.weight_grad_fused = 0.5;
  costs.layers[0].weight_grad = costs.layers[1].weight_grad = 7;
  const Plan stream = planned_with("gpipe", costs);
  EXPECT_EQ(stream.stages[0].size(), 2u);
  EXPECT_EQ(stream.prediction.makespan, 2 + 4 * 6 + 12 + 4 * 16);  // one F, all F's, one B, all B's
  const Plan fused = planned_with("gpipe", costs, WeightGradients::fused);
  EXPECT_EQ(fused.stages[0].size(), 4u);
  // The first micro-batch takes 4 + 4 in each direction, three more take 3 * 8, and W takes 4 * 4 * 0.5.
  EXPECT_EQ(fused.prediction.makespan, 16 + 3 * 8 + 8);
  EXPECT_EQ(make_plan(costs, {.schedules = {"gpipe"}}).plan, fused);
}

TEST(Planner, the_cost_of_an_unsplit_b_moves_the_boundary) {
  LayerCosts costs = even_layers();
  for (LayerCost* layer : {&costs.layers[0], &costs.layers[1]}) {
    layer->backward = 5;
    layer->input_grad = layer->weight_grad = 4;
  }
  EXPECT_EQ(planned_with("gpipe", costs).stages[0].size(), 3u);  // 6 + 6 + 3 and 5 * 3
  EXPECT_EQ(planned_with("gpipe", costs).prediction.makespan, 3 + 4 * 5 + 10 + 4 * 12);
  EXPECT_EQ(planned_with("1f1b-early", costs).stages[0].size(), 2u);  // 9 + 9 and 6 * 3
}

// The update of the last layer is so expensive that its rank has fewer layers.
TEST(Planner, the_cost_of_an_update_moves_the_boundary) {
  LayerCosts costs = even_layers();
  EXPECT_EQ(planned_with("gpipe", costs).prediction.makespan, 60);
  for (LayerCost& layer : costs.layers) layer.update = 2;
  EXPECT_EQ(planned_with("gpipe", costs).stages[0].size(), 4u);
  EXPECT_EQ(planned_with("gpipe", costs).prediction.makespan, 60 + 4 * 2);
  costs.layers[7].update = 48;
  EXPECT_EQ(planned_with("gpipe", costs).stages[0].size(), 6u);  // per micro-batch 6 * 3.5, and 2 * 3 + 50 / 4
}

/// Two micro-batches through layers with F = I = W of these times.
LayerCosts layers_of(const std::vector<double>& times, int ranks) {
  LayerCosts costs = even_layers();
  costs.ranks = ranks;
  costs.samples = 8;
  costs.layers.clear();
  for (const double time : times)
    costs.layers.push_back({say("layer", costs.layers.size()), time, time, time, 0, 0, 0});
  return costs;
}

std::vector<std::size_t> sizes_of(const StageLayers& stages) {
  std::vector<std::size_t> sizes;
  for (const auto& stage : stages) sizes.push_back(stage.size());
  return sizes;
}

// Ranks with 15 each need a stage of 10. With 16 and 14 the slowest stage takes 9, and the pipeline fills faster.
TEST(Planner, few_micro_batches_need_fast_stages) {
  const LayerCosts costs = layers_of({1, 2, 1, 1, 3, 2, 7, 2, 3, 3, 3, 2}, 2);
  PlanConstraints constraints{.schedules = {"interleaved"}, .weight_gradients = WeightGradients::stream};
  constraints.chunks = 2;
  const Plan plan = make_plan(costs, constraints).plan;
  EXPECT_EQ(plan.prediction.makespan, 109);
  EXPECT_EQ(sizes_of(plan.stages), (std::vector<std::size_t>{5, 2, 3, 2}));
}

// Balanced ranks with 5, 3 and 4. With two micro-batches it matters more that the last stage is short.
TEST(Planner, the_simulated_step_moves_boundaries) {
  const LayerCosts costs = layers_of({1, 1, 3, 3, 1, 3}, 3);
  const Planned planned = make_plan(costs, {.schedules = {"1f1b"}, .weight_gradients = WeightGradients::stream});
  EXPECT_EQ(planned.candidates.front().partition, PartitionKind::improved);
  EXPECT_EQ(planned.plan.prediction.makespan, 46);
  EXPECT_EQ(sizes_of(planned.plan.stages), (std::vector<std::size_t>{3, 2, 1}));
}

TEST(Planner, weight_gradients_are_grouped_if_fused_ones_do_not_fit) {
  LayerCosts costs = even_layers();
  costs.memory_cap_bytes = 400 + 3 * 40;
  const Planned planned = make_plan(costs, {.schedules = {"1f1b"}, .weight_gradients = WeightGradients::fused});
  EXPECT_EQ(planned.plan.weight_gradients, WeightGradients::grouped);
  EXPECT_EQ(most(planned.plan.prediction.memory_bytes), 400 + 3 * 40);
  ASSERT_EQ(planned.candidates.size(), 2u);
  EXPECT_FALSE(planned.candidates[1].fits);
  EXPECT_EQ(most(planned.candidates[1].prediction.memory_bytes), 400 + 4 * 40);
}

TEST(Planner, less_memory_wins_among_equally_short_steps) {
  // Both take (12 + 3) * (F + I + W), but the sum in the order of GPipe is smaller in the last digit.
  LayerCosts costs = even_layers();
  costs.ranks = 4;
  costs.samples = costs.micro_batches.emplace_back(12) * costs.micro_batch_size;
  costs.layers.resize(4);
  for (LayerCost& layer : costs.layers) {
    layer.forward = 0.722;
    layer.input_grad = 0.113;
    layer.weight_grad = 0.388;
  }
  const PlanConstraints constraints{.schedules = {"gpipe", "1f1b"}, .weight_gradients = WeightGradients::stream};
  const Planned planned = make_plan(costs, constraints);
  EXPECT_LT(planned.candidates[1].prediction.makespan, planned.candidates[0].prediction.makespan);
  EXPECT_EQ(planned.candidates[0].schedule, "1f1b");
  EXPECT_EQ(planned.plan.schedule, generate("1f1b", {.ranks = 4, .micro_batches = 12}));
}

TEST(Planner, a_step_that_takes_no_time_is_planned) {
  LayerCosts costs = even_layers();
  for (LayerCost& layer : costs.layers) layer.forward = layer.input_grad = layer.weight_grad = 0;
  const Planned planned = make_plan(costs);
  EXPECT_EQ(planned.plan.prediction.makespan, 0);
  EXPECT_EQ(planned.candidates.front().schedule, "sequential");
}

TEST(Planner, refuses_invalid_input) {
  const PlanConstraints no_training{.schedules = {"forward-only"}};
  EXPECT_EQ(test::error_text<ConfigError>([&] { make_plan(even_layers(), no_training); }),
            "schedule 'forward-only' only goes forward: a plan is for training");
  EXPECT_THROW(make_plan(even_layers(), {.schedules = {"one-f"}}), ConfigError);
  EXPECT_THROW(make_plan(even_layers(), {.weight_gradients = WeightGradients::grouped}), ConfigError);
  LayerCosts costs = even_layers();
  costs.ranks = 9;
  EXPECT_EQ(test::error_text<ScheduleError>([&] { make_plan(costs); }),
            "nothing can be tried: 8 layers do not make a stage for each of 9 ranks and their chunks; use fewer ranks");
}

TEST(Planner, the_smallest_sufficient_cap_is_named) {
  LayerCosts costs = even_layers();
  costs.memory_cap_bytes = 439;
  const PlanConstraints constraints{.schedules = {"gpipe", "sequential"}};
  EXPECT_EQ(test::error_text<ScheduleError>([&] { make_plan(costs, constraints); }),
            "no schedule fits into 439 bytes per rank: the smallest cap that would do is 440 bytes, with 'sequential', "
            "1 chunk per rank and 4 micro-batches");
  costs.memory_cap_bytes = 440;
  EXPECT_EQ(make_plan(costs, constraints).plan.schedule.name, "sequential");
}

TEST(Planner, tries_schedules_of_the_user) {
  const LayerCosts costs = even_layers();
  const int m = candidate_micro_batches(costs).front();
  Schedule own = generate("gpipe", {.ranks = costs.ranks, .micro_batches = m});
  own.name = "own";
  const auto plan = [&](std::vector<std::string> names, Schedule schedule) {
    return make_plan(costs, {.schedules = std::move(names),
                             .own_schedules = {std::move(schedule)},
                             .weight_gradients = WeightGradients::stream});
  };
  const Planned beside = plan({"gpipe"}, lower(own));
  ASSERT_EQ(beside.candidates.size(), 2u);
  EXPECT_EQ(beside.candidates[0].prediction, beside.candidates[1].prediction);
  EXPECT_EQ(beside.candidates[0].stages.size(), static_cast<std::size_t>(costs.ranks));
  const Planned alone = plan({}, own);
  ASSERT_EQ(alone.candidates.size(), 1u);
  EXPECT_EQ(alone.plan.schedule, own);
  EXPECT_EQ(simulate(own, stage_costs_of(alone.plan, costs)).makespan, alone.plan.prediction.makespan);
  EXPECT_THROW(plan({}, generate("gpipe", {.ranks = costs.ranks + 1, .micro_batches = m})), ConfigError);
  EXPECT_THROW(plan({}, generate("gpipe", {.ranks = costs.ranks, .micro_batches = m + 1})), ConfigError);
  EXPECT_THROW(plan({}, fuse_w(own)), ConfigError);
  EXPECT_THROW(plan({}, generate("forward-only", {.ranks = costs.ranks, .micro_batches = m})), ConfigError);
  std::swap(own.orders[0].front(), own.orders[0].back());
  EXPECT_THROW(plan({}, own), ScheduleError);
}

TEST(Planner, given_chunks_stay) {
  const Planned planned = make_plan(even_layers(), {.chunks = 2});
  for (const Candidate& candidate : planned.candidates) EXPECT_EQ(candidate.chunks, 2) << candidate.schedule;
  EXPECT_EQ(planned.plan.schedule.stage_count(), 4);
  EXPECT_EQ(make_plan(even_layers(), {.chunks = 1}).plan.schedule.stage_count(), 2);
  LayerCosts costs = even_layers();
  costs.ranks = 1;
  EXPECT_EQ(make_plan(costs, {.chunks = 8}).plan.schedule.stage_count(), 8) << "more than the planner tries by itself";
  EXPECT_TRUE(test::says(test::error_text<ScheduleError>([] { make_plan(even_layers(), {.chunks = 5}); }),
                         "8 layers do not make a stage for each of 2 ranks and their 5 chunks"));
  EXPECT_THROW(make_plan(even_layers(), {.chunks = 0}), ConfigError);
}

TEST(Planner, given_stages_stay) {
  const StageLayers two{{"layer0"}, {"layer1", "layer2", "layer3", "layer4", "layer5", "layer6", "layer7"}};
  for (const Candidate& candidate : make_plan(even_layers(), {.stages = two}).candidates) {
    EXPECT_EQ(candidate.chunks, 1);
    EXPECT_STREQ(to_string(candidate.partition), "given");
  }
  const StageLayers four{{"layer0"}, {"layer1", "layer2"}, {"layer3", "layer4", "layer5", "layer6"}, {"layer7"}};
  const Planned planned = make_plan(even_layers(), {.stages = four});
  EXPECT_EQ(planned.plan.stages, four);
  EXPECT_EQ(planned.plan.schedule.stage_count(), 4);
  EXPECT_EQ(predict(planned.plan, even_layers()), planned.plan.prediction);

  const auto complaint = [](const PlanConstraints& constraints) {
    return test::error_text<ConfigError>([&] { make_plan(even_layers(), constraints); });
  };
  EXPECT_TRUE(test::says(complaint({.stages = {{"layer0"}, {"layer1"}}}), "the plan has 2 layers", "the costs have 8"));
  EXPECT_TRUE(test::says(complaint({.chunks = 1, .stages = four}), "on 4 stages", "2 ranks with 1 chunks", "have 2"));
  StageLayers three = two;
  three[1].resize(3);
  three.push_back({"layer4", "layer5", "layer6", "layer7"});
  EXPECT_TRUE(test::says(complaint({.stages = three}), "3 stages", "2 ranks"));
  three.emplace_back();
  EXPECT_TRUE(test::says(complaint({.stages = three}), "stage 3 has no layers"));
}

TEST(Planner, stays_within_a_memory_limit) {
  EXPECT_TRUE(rc::check("live micro-batches are at most as many as the limit", [] {
    LayerCosts costs = any_costs(10);
    costs.weight_share = 1;
    const double limit = *rc::gen::element(0.5, 1.0, 1.3, 2.0, 4.0);
    Planned planned;
    try {
      planned = make_plan(costs, {.memory_limit = TimesOf1F1B{limit}, .finalists = 9});
    } catch (const ScheduleError& error) {
      RC_ASSERT(test::says(error.what(), "no schedule stays within a memory limit of"));
      return;
    }
    for (const Finalist& each : planned.finalists) require_within_limit(each.plan.schedule, TimesOf1F1B{limit});
  }));
}

TEST(Planner, a_memory_limit_leaves_out_what_exceeds_it) {
  const PlanConstraints gpipe{.schedules = {"gpipe"}, .memory_limit = TimesOf1F1B{1.5}};
  EXPECT_EQ(test::error_text<ScheduleError>([&] { make_plan(even_layers(), gpipe); }),
            "no schedule stays within a memory limit of 1.5 (times 1F1B's live micro-batches): the smallest limit that "
            "would do is 2, with 'gpipe', 1 chunk per rank and 4 micro-batches");
  EXPECT_EQ(make_plan(even_layers(), {.schedules = {"gpipe"}, .memory_limit = TimesOf1F1B{2}})
                .candidates.front()
                .needed_limit,
            MemoryLimit(TimesOf1F1B{2}));
  // One W for the step does not fit, groups do.
  const PlanConstraints fused{
      .schedules = {"1f1b"}, .weight_gradients = WeightGradients::fused, .memory_limit = TimesOf1F1B{1.5}};
  const Planned planned = make_plan(even_layers(), fused);
  EXPECT_EQ(planned.plan.weight_gradients, WeightGradients::grouped);
  EXPECT_EQ(planned.candidates[1].needed_limit, MemoryLimit(TimesOf1F1B{2}));
  EXPECT_TRUE(test::says(to_table(planned), "needs 560 bytes, limit 2"));
  // zb-auto fits the limit instead of 1, 1.5 and 2.
  const Planned adapted = make_plan(even_layers(), {.schedules = {"zb-auto"}, .memory_limit = TimesOf1F1B{1.25}});
  for (const Candidate& candidate : adapted.candidates)
    EXPECT_LE(candidate.memory_limit, MemoryLimit(TimesOf1F1B{1.25}));
  EXPECT_THROW(make_plan(even_layers(), {.memory_limit = TimesOf1F1B{0}}), ConfigError);
}

TEST(Planner, stays_within_a_memory_limit_in_bytes) {
  EXPECT_TRUE(rc::check("predicted activations are at most the limit", [] {
    LayerCosts costs = any_costs(10);
    costs.weight_share = *rc::gen::inRange(0, 5) / 4.0;
    for (LayerCost& layer : costs.layers) layer.activation_bytes = 10 * *rc::gen::inRange(1, 5);
    const BytesPerRank limit{*rc::gen::inRange(10, 400)};
    Planned planned;
    try {
      planned = make_plan(costs, {.memory_limit = limit, .finalists = 9});
    } catch (const ScheduleError& error) {
      RC_ASSERT(test::says(error.what(), "no schedule stays within a memory limit of", "of activations per rank"));
      return;
    }
    for (const Candidate& candidate : planned.candidates)
      if (candidate.fits) RC_ASSERT(candidate.needed_limit <= MemoryLimit(limit));
    for (LayerCost& layer : costs.layers) layer.parameter_bytes = 0;
    for (const Finalist& finalist : planned.finalists)
      RC_ASSERT(predict(finalist.plan, costs).most_bytes() <= static_cast<double>(limit.bytes));
  }));
}

TEST(Planner, a_memory_limit_in_bytes_leaves_out_what_exceeds_it) {
  // 8 layers of 10 bytes on 2 ranks: 40 bytes for a micro-batch of a stage; GPipe holds 4 of them, 1F1B 2.
  const auto complaint = [](const PlanConstraints& constraints) {
    return test::error_text<ScheduleError>([&] { make_plan(even_layers(), constraints); });
  };
  EXPECT_EQ(complaint({.schedules = {"gpipe"}, .memory_limit = BytesPerRank{120}}),
            "no schedule stays within a memory limit of 120B of activations per rank: the smallest limit that would do "
            "is 160B, with 'gpipe', 1 chunk per rank and 4 micro-batches");
  const Planned planned = make_plan(even_layers(), {.schedules = {"gpipe", "1f1b"}, .memory_limit = BytesPerRank{120}});
  EXPECT_EQ(planned.candidates.front().schedule, "1f1b");
  EXPECT_EQ(planned.candidates.front().needed_limit, MemoryLimit(BytesPerRank{80}));
  EXPECT_FALSE(planned.candidates.back().fits);
  EXPECT_TRUE(test::says(to_table(planned), "limit 160B"));
  // One W for the step does not fit, groups do.
  const PlanConstraints fused{
      .schedules = {"1f1b"}, .weight_gradients = WeightGradients::fused, .memory_limit = BytesPerRank{120}};
  EXPECT_EQ(make_plan(even_layers(), fused).plan.weight_gradients, WeightGradients::grouped);
  // zb-auto has a candidate that uses all of the limit.
  const Planned adapted = make_plan(even_layers(), {.schedules = {"zb-auto"}, .memory_limit = BytesPerRank{120}});
  EXPECT_TRUE(std::any_of(adapted.candidates.begin(), adapted.candidates.end(), [](const Candidate& candidate) {
    return candidate.fits && candidate.memory_limit == MemoryLimit(BytesPerRank{120});
  }));
  EXPECT_THROW(make_plan(even_layers(), {.memory_limit = BytesPerRank{0}}), ConfigError);
}

/// The first layers hold most of the memory, and the last ones take most of the time.
TEST(Planner, partitions_for_a_memory_limit_in_bytes) {
  LayerCosts costs = even_layers();
  for (std::size_t n = 0; n < costs.layers.size(); ++n) costs.layers[n].activation_bytes = n < 2 ? 50 : 5;
  const PlanConstraints free{.schedules = {"1f1b"}, .weight_gradients = WeightGradients::stream};
  PlanConstraints limited = free;
  limited.memory_limit = BytesPerRank{205};  // 1F1B holds two micro-batches on rank 0: 2 * 110 with an even partition
  EXPECT_EQ(make_plan(costs, free).plan.stages.front().size(), 4u);
  const Planned planned = make_plan(costs, limited);
  EXPECT_EQ(planned.plan.stages.front().size(), 2u) << "the fastest partition that fits";
  EXPECT_EQ(planned.candidates.front().needed_limit, MemoryLimit(BytesPerRank{200}));
}

TEST(Planner, the_plan_is_the_best_candidate) {
  EXPECT_TRUE(rc::check("never worse than a fixed schedule", [] {
    LayerCosts costs = any_costs(14);
    if (*rc::gen::arbitrary<bool>()) costs.memory_cap_bytes = *rc::gen::inRange(100, 1500);
    const auto found = test::accepted<ScheduleError>([&] { return make_plan(costs); });
    if (!found) RC_DISCARD("nothing fits");
    const Planned& planned = *found;
    RC_LOG() << write_layer_costs(costs) << to_table(planned) << explanation(planned);
    const Prediction& prediction = planned.plan.prediction;
    RC_ASSERT(planned.candidates.front().prediction == prediction);
    // To nine digits: among equally short steps, the plan is the one with the least memory.
    const double shortest = prediction.makespan * (1 - 1e-8);
    for (const Candidate& candidate : planned.candidates)
      RC_ASSERT(!candidate.fits || candidate.prediction.makespan >= shortest);
    validate(planned.plan.schedule).require_ok(planned.plan.schedule);
    RC_ASSERT(read_plan(write_plan(planned.plan)) == planned.plan);
    RC_ASSERT(most_bytes_counted(costs, planned.plan) == most(prediction.memory_bytes));
    RC_ASSERT(!costs.memory_cap_bytes || most(prediction.memory_bytes) <= *costs.memory_cap_bytes);

    std::vector<std::string> names;
    for (const auto& stage : planned.plan.stages) names.insert(names.end(), stage.begin(), stage.end());
    RC_ASSERT(names.size() == costs.layers.size());
    for (std::size_t layer = 0; layer < names.size(); ++layer) RC_ASSERT(names[layer] == costs.layers[layer].name);

    const double largest_cap = costs.memory_cap_bytes.value_or(1e18);
    for (const ScheduleGenerator& generator : generators()) {
      if (!trains(generator)) continue;
      if (static_cast<std::size_t>(generator.default_chunks * costs.ranks) > costs.layers.size()) continue;
      for (const int m : costs.micro_batches) {
        const Fixed fixed = uniform(costs, generator, m);
        RC_ASSERT(fixed.bytes > largest_cap || shortest <= fixed.makespan);
      }
    }
  }));
}

TEST(Planner, the_named_cap_is_the_smallest) {
  EXPECT_TRUE(rc::check("a byte less is refused", [] {
    LayerCosts costs = any_costs(10);
    costs.memory_cap_bytes = 0;
    const std::string text = test::error_text<ScheduleError>([&] { make_plan(costs); }), before = "would do is ";
    if (text == "[no error]") RC_DISCARD("these layers hold nothing");
    const double smallest = std::stod(text.substr(text.find(before) + before.size()));
    costs.memory_cap_bytes = smallest;
    RC_ASSERT(most(make_plan(costs).plan.prediction.memory_bytes) == smallest);
    costs.memory_cap_bytes = smallest - 1;
    RC_ASSERT_THROWS_AS(make_plan(costs), ScheduleError);
  }));
}

TEST(PlanReport, reports_a_slowdown_under_load) {
  LayerCosts costs = even_layers();
  const PlanConstraints constraints{.schedules = {"gpipe"}};
  EXPECT_FALSE(test::says(explanation(make_plan(costs, constraints)), "alone"));
  costs.slowdown_under_load = 1.25;
  EXPECT_TRUE(test::says(explanation(make_plan(costs, constraints)), "take 1.25 times what they take without the "));
}

TEST(PlanReport, reports_measured_steps) {
  Planned planned =
      make_plan(even_layers(), {.schedules = {"gpipe", "1f1b"}, .weight_gradients = WeightGradients::stream});
  planned.compared = {{planned.candidates[0], 61.25}, {planned.candidates[1], 62}};
  const std::string text = explanation(planned);
  EXPECT_TRUE(test::says(text, "Chosen: '1f1b' (v = 1, m = 4, weight gradients stream), one of the best of 2 tried: ",
                         "60.000 ms predicted", "measured in interleaved runs: 61.250 ms; of 'gpipe'", " 62.000 ms. "))
      << text;
}

TEST(PlanReport, reports_simpler_candidates_within_noise) {
  Planned planned =
      make_plan(even_layers(), {.schedules = {"1f1b", "gpipe"}, .weight_gradients = WeightGradients::stream});
  EXPECT_FALSE(test::says(explanation(planned), "Within noise"));
  planned.candidates[0].chunks = 2;
  planned.candidates[1].prediction.makespan = 1.01 * planned.candidates[0].prediction.makespan;
  EXPECT_TRUE(test::says(explanation(planned), "Within noise (2.0 %): the simpler 'gpipe'", "1.0 % longer"));
  planned.candidates[1].prediction.makespan *= 1.02;
  EXPECT_FALSE(test::says(explanation(planned), "Within noise"));
}

TEST(Planner, takes_the_simplest_within_the_spread_of_the_costs) {
  const PlanConstraints constraints{.schedules = {"1f1b", "interleaved"}, .weight_gradients = WeightGradients::stream};
  LayerCosts costs = even_layers();
  costs.ranks = 2;
  const Planned shortest = make_plan(costs, constraints);
  ASSERT_EQ(shortest.candidates[0].schedule, "interleaved");
  const double longer = shortest.candidates.back().prediction.makespan / shortest.candidates[0].prediction.makespan;
  for (const double spread : {longer - 1.001, longer - 0.999}) {
    costs.spread = spread;
    const Planned planned = make_plan(costs, constraints);
    const bool is_within = spread > longer - 1;
    EXPECT_EQ(planned.candidates[0].schedule, is_within ? "1f1b" : "interleaved");
    EXPECT_EQ(planned.plan.schedule.name, planned.candidates[0].schedule);
    EXPECT_TRUE(!is_within || test::says(explanation(planned), "Chosen: '1f1b'", "the simplest"));
  }
}

TEST(PlanReport, asks_for_a_cap_if_memory_is_beyond_any_device) {
  Planned planned = make_plan(even_layers(), {.schedules = {"1f1b"}});
  EXPECT_FALSE(test::says(explanation(planned), "--memory-cap"));
  planned.candidates.front().prediction.memory_bytes.front() = 541e9;
  EXPECT_TRUE(test::says(explanation(planned), "541.00 GB", "--memory-cap 80GB"));
  planned.has_memory_cap = true;
  EXPECT_FALSE(test::says(explanation(planned), "--memory-cap"));
}

// zb-auto has candidates with several memory limits, whose rows once differed in their times only.
TEST(PlanReport, rows_differ_in_a_visible_column) {
  const Planned planned = make_plan(even_layers(), {.schedules = {"zb-auto", "1f1b"}});
  std::set<std::string> settings;
  for (const Candidate& candidate : planned.candidates) {
    EXPECT_EQ(candidate.memory_limit.has_value(), candidate.schedule == "zb-auto");
    settings.insert(say(candidate.schedule, candidate.chunks, ' ', candidate.micro_batches, ' ',
                        candidate.memory_limit ? to_string(*candidate.memory_limit) : "none",
                        to_string(candidate.weight_gradients)));
  }
  EXPECT_EQ(settings.size(), planned.candidates.size());
  const std::string table = to_table(planned);
  EXPECT_TRUE(test::says(table, "schedule  v  m  limit", "zb-auto  1  4    1.5", "1f1b  1  4      -")) << table;
}

TEST(PlanReport, a_table_and_a_paragraph) {
  LayerCosts costs = even_layers();
  costs.memory_cap_bytes = 480;
  const PlanConstraints constraints{.schedules = {"gpipe", "sequential", "1f1b"},
                                    .weight_gradients = WeightGradients::stream};
  const Planned planned = make_plan(costs, constraints);
  EXPECT_EQ(to_table(planned),
            "  schedule  v  m       W  partition  makespan  bubble  memory           result\n"
            "      1f1b  1  4  stream       time    60.000  20.0 %   480 B           chosen\n"
            "sequential  1  4  stream       time    96.000  50.0 %   440 B    60.0 % slower\n"
            "     gpipe  1  4  stream    uniform         -       -   560 B  needs 560 bytes\n");
  EXPECT_EQ(to_table(planned, 1),
            "schedule  v  m       W  partition  makespan  bubble  memory  result\n"
            "    1f1b  1  4  stream       time    60.000  20.0 %   480 B  chosen\n"
            "... and 2 more\n");
  EXPECT_EQ(explanation(planned),
            "Chosen: '1f1b' (v = 1, m = 4, weight gradients stream), the shortest step of 3 tried: 60.000 ms, of which "
            "ranks idle 20.0 %. The best of another kind, 'sequential' (v = 1, m = 4, weight gradients stream), takes "
            "60.0 % longer and idles 50.0 %. Rank 0 holds the most: 480 B, with 2.00 micro-batches alive. 1 did not "
            "fit into memory.\n");
}

TEST(Planner, the_first_stage_may_compute_its_whole_backward_pass_in_w) {
  LayerCosts costs;
  costs.time_unit = "ms";
  costs.ranks = 2;
  costs.samples = 4;
  for (const char* name : {"a", "b", "c", "d"})
    costs.layers.push_back({.name = name, .forward = 1, .input_grad = 2, .weight_grad = 3, .backward = 4});
  costs.first_stage_splits = false;
  const StageCosts found = stage_costs(LayerSums(costs, 4), {Rank(0), Rank(1)}, {{0, 2}, {2, 4}});
  EXPECT_EQ(found.input_grad, (std::vector<double>{0, 4}));
  EXPECT_EQ(found.weight_grad, (std::vector<double>{8, 6}));
  const double deferring = planned_with("zb-h1", costs).prediction.makespan;
  costs.first_stage_splits = true;
  EXPECT_NE(deferring, planned_with("zb-h1", costs).prediction.makespan);
}

}  // namespace
}  // namespace penstock::planner_test
