#include "penstock/plan/advice.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/layer_costs.h"
#include "tests/base/error_text.h"
#include "tests/plan/small_costs.h"
#include "tests/trace/made_trace.h"

namespace penstock::advice_test {
namespace {

constexpr double tiny = 1e-9;

/// The recommendation of the given kind; one that saves nothing if there is none.
Recommendation recommendation(const Advice& advice, RecommendationKind kind) {
  for (const Recommendation& found : advice.recommendations)
    if (found.kind == kind) return found;
  return {kind, advice.step_ms, 0, "none"};
}

double makespan(const Schedule& instructions, const StageCosts& costs) {
  return simulate(instructions, costs).makespan;
}

/// The end of a recommendation's sentence.
std::string saving(double step_ms, double now_ms) {
  return say(fixed(100 * (1 - step_ms / now_ms), 1), " % of a step: ", fixed(step_ms, 2), " ms instead of ",
             fixed(now_ms, 2), " ms");
}

/// The same F, I and W of each stage.
StageCosts costs_of(const std::vector<double>& each) {
  return {.forward = each, .input_grad = each, .weight_grad = each};
}

/// Adds `costs` to the settings of `trace`. `ends` has the number of layers before the end of each stage but the last.
void report_layers(Trace& trace, const LayerCosts& costs, std::vector<std::size_t> ends) {
  ends.push_back(costs.layers.size());
  StageLayers stages;
  std::size_t at = 0;
  for (const std::size_t end : ends) {
    stages.emplace_back();
    while (at < end) stages.back().push_back(costs.layers[at++].name);
  }
  trace.settings[layers_setting] = write_stage_layers(stages);
  note_costs(costs, trace);
}

/// One layer for each of two stages.
LayerCosts two_layers() {
  LayerCosts costs = even_layers();
  costs.layers.resize(2);
  return costs;
}

TEST(Advice, recommends_a_better_schedule) {
  const Advice advice = advise(made_trace({.schedule = "sequential"}));
  EXPECT_DOUBLE_EQ(advice.step_ms, 24);
  const Recommendation best = recommendation(advice, RecommendationKind::schedule);
  EXPECT_DOUBLE_EQ(best.step_ms, makespan(generate("1f1b", {.ranks = 2, .micro_batches = 4}), StageCosts::unit()));
  EXPECT_NEAR(best.saved, 1 - 15.0 / 24, tiny);
  EXPECT_EQ(advice.sentence,
            "What would help most: schedule '1f1b' in place of 'sequential' would save 37.5 % of a step: 15.00 ms "
            "instead of 24.00 ms; its fullest rank holds 2.00 micro-batches instead of 1.00.");
}

// Without layer costs, the times of I and W are unknown. With them, schedules that split B are simulated too.
TEST(Advice, layer_costs_permit_schedules_that_split_b) {
  const ScheduleShape shape{.ranks = 2, .micro_batches = 4};
  const StageCosts costs{.forward = {2}, .input_grad = {3}, .weight_grad = {1}};
  Trace trace = made_trace({.shape = shape, .costs = costs});
  EXPECT_LT(recommendation(advise(trace), RecommendationKind::schedule).saved, tiny);

  LayerCosts layers = two_layers();
  for (LayerCost& layer : layers.layers) layer.input_grad = 3;  // the ratio of I to W is that of `costs`
  report_layers(trace, layers, {1});
  double fastest = 1e300;
  for (const ScheduleGenerator& generator : generators())
    if (trains(generator) && generator.min_chunks == 1)
      fastest = std::min(fastest, makespan(generate(generator.name, shape, {.costs = costs}), costs));
  const Recommendation best = recommendation(advise(trace), RecommendationKind::schedule);
  EXPECT_NEAR(best.step_ms, fastest, tiny);
  EXPECT_GT(best.saved, 0.02);
  EXPECT_NEAR(best.saved, 1 - fastest / makespan(generate("1f1b", shape), costs), tiny);
}

TEST(Advice, layer_costs_permit_more_chunks) {
  Trace trace = made_trace({.costs = costs_of({4})});
  report_layers(trace, even_layers(), {4});
  const Recommendation best = recommendation(advise(trace), RecommendationKind::schedule);
  EXPECT_TRUE(test::says(best.sentence, "chunks per rank in place of '1f1b' would save "));
  const Schedule two_chunks = generate("interleaved", {.ranks = 2, .micro_batches = 4, .chunks = 2});
  EXPECT_LT(best.step_ms, makespan(two_chunks, costs_of({2})) + tiny);
}

TEST(Advice, recommends_fused_weight_gradients) {
  const ScheduleShape shape{.ranks = 2, .micro_batches = 16};
  Trace trace = made_trace({.shape = shape, .costs = costs_of({1})});
  LayerCosts layers = two_layers();
  for (LayerCost& layer : layers.layers) layer.weight_grad_fused = 0.25;
  EXPECT_EQ(recommendation(advise(trace), RecommendationKind::fused).sentence, "none");
  report_layers(trace, layers, {1});
  const Advice advice = advise(trace);
  StageCosts costs = costs_of({1});
  costs.weight_grad_fused = {0.25};
  const double fused = makespan(fuse_w(generate("1f1b", shape)), costs);
  EXPECT_NEAR(recommendation(advice, RecommendationKind::fused).step_ms, fused, tiny);
  EXPECT_TRUE(test::says(advice.sentence, "What would help most: fused weight gradients (--weight-gradients fused) ",
                         saving(fused, 51) + "; its fullest rank holds "))
      << advice.sentence;
  layers.memory_cap_bytes = 100 + 4 * 3;  // parameters, and 4 micro-batches of one sample each
  report_layers(trace, layers, {1});
  EXPECT_EQ(recommendation(advise(trace), RecommendationKind::fused).sentence, "none") << "there is no space for it";
}

TEST(Advice, a_better_partition_names_the_layer) {
  const ScheduleShape shape{.ranks = 2, .micro_batches = 32};
  const StageCosts uneven = costs_of({5, 3});
  Trace trace = made_trace({.schedule = "zb-h1", .shape = shape, .costs = uneven});
  report_layers(trace, even_layers(), {5});
  const Advice advice = advise(trace);
  const double even = makespan(generate("zb-h1", shape), costs_of({4}));
  const double now = makespan(generate("zb-h1", shape), uneven);
  EXPECT_NEAR(advice.step_ms, now, tiny);
  EXPECT_NEAR(recommendation(advice, RecommendationKind::partition).step_ms, even, tiny);
  EXPECT_EQ(recommendation(advice, RecommendationKind::partition).sentence,
            "stage 0 is 66.7 % heavier than stage 1: a boundary after layer 'layer3' instead of 'layer4' would save " +
                saving(even, now));
  EXPECT_GT(recommendation(advice, RecommendationKind::partition).saved, 0.15);
}

TEST(Advice, recommends_an_even_partition_without_layer_costs) {
  const ScheduleShape shape{.ranks = 2, .micro_batches = 16};
  const StageCosts uneven = costs_of({3, 5});
  const Advice advice = advise(made_trace({.shape = shape, .costs = uneven}));
  const double even = makespan(generate("1f1b", shape), costs_of({4}));
  const double now = makespan(generate("1f1b", shape), uneven);
  EXPECT_TRUE(test::says(advice.sentence,
                         "What would help most: stage 1 is 66.7 % heavier than stage 0: an even partition would save ",
                         saving(even, now) + "; --partition time or --schedule auto comes close."));
}

TEST(Advice, recommends_faster_messages) {
  const StageCosts costs{.message = 5};
  const Advice advice = advise(made_trace({.costs = costs}));
  const double now = makespan(generate("1f1b", {.ranks = 2, .micro_batches = 4}), costs);
  EXPECT_DOUBLE_EQ(advice.step_ms, now);
  EXPECT_EQ(advice.sentence,
            "What would help most: messages take 5.00 ms each: faster ones would save up to " + saving(15, now) + ".");
}

TEST(Advice, recommends_a_faster_optimiser) {
  EXPECT_TRUE(test::says(advise(made_trace({.costs = {.update = {10, 10}}})).sentence,
                         "What would help most: the optimiser's step takes up to 10.00 ms: ",
                         "would save up to 40.0 % of a step: 15.00 ms instead of 25.00 ms."));
}

TEST(Advice, recommends_a_faster_loader) {
  Trace trace = made_trace({.steps = 5});
  for (auto& steps : trace.ranks)
    for (std::size_t i = 0; i < steps.size(); ++i) delay(steps[i], static_cast<std::int64_t>(i) * 4'999'000);
  EXPECT_TRUE(test::says(advise(trace).sentence, "What would help most: steps start 5.00 ms late: ",
                         "would save 25.0 % of a step: 15.00 ms instead of 20.00 ms."));
}

TEST(Advice, recommends_nothing_if_ranks_are_always_busy) {
  EXPECT_EQ(advise(made_trace({.shape = {.ranks = 1, .micro_batches = 4}})).sentence,
            "Nothing was found that saves more than 2 %: compute is 100.0 % of the ranks' time.");
  const Advice forward = advise(made_trace({.schedule = "forward-only", .shape = {.ranks = 2, .micro_batches = 99}}));
  EXPECT_EQ(forward.sentence, "Nothing was found that saves more than 2 %: compute is 99.0 % of the ranks' time.");
}

TEST(Advice, the_largest_saving_comes_first_and_is_in_the_sentence) {
  const Advice advice = advise(made_trace({.costs = {.forward = {1, 2}, .update = {3}, .message = 1}, .steps = 4}));
  EXPECT_EQ(advice.recommendations.size(), 5u);
  EXPECT_TRUE(std::is_sorted(advice.recommendations.begin(), advice.recommendations.end(),
                             [](const Recommendation& a, const Recommendation& b) { return a.saved > b.saved; }));
  for (const Recommendation& one : advice.recommendations)
    EXPECT_NEAR(one.saved, 1 - one.step_ms / advice.step_ms, tiny);
  EXPECT_EQ(advice.sentence, say("What would help most: ", advice.recommendations.front().sentence, "."));
}

TEST(Advice, refuses_costs_of_another_network) {
  Trace trace = made_trace({});
  const auto complaint_of = [&](const LayerCosts& costs) {
    return test::error_text<Misuse>([&] { advise(trace, costs); });
  };
  EXPECT_TRUE(test::says(complaint_of(two_layers()), "the trace does not say which layers", "no setting 'layers'"));
  report_layers(trace, even_layers(), {4});
  EXPECT_TRUE(test::says(complaint_of(two_layers()), "layer 2 of the trace is 'layer2'", "costs have no layer there"));
  trace.settings[layers_setting] = "layer0;layer1";
  EXPECT_TRUE(test::says(complaint_of(even_layers()), "the trace names 2 layers", "the costs have 8"));
  trace.settings[layers_setting] = "layer0,layer1";
  EXPECT_EQ(complaint_of(two_layers()), "the trace names the layers of 1 stages, and its schedule has 2");
  trace.settings = {{layers_setting, "a;b"}};
  EXPECT_NO_THROW(advise(trace)) << "names alone say nothing";
  Trace nameless = made_trace({});
  note_costs(two_layers(), nameless);
  EXPECT_FALSE(nameless.settings.contains(layer_costs_setting)) << "it would be refused";
  EXPECT_THROW(advise(Trace{}), DataError);
}

}  // namespace
}  // namespace penstock::advice_test
