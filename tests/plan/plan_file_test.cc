#include "penstock/plan/plan_file.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/plan/planner.h"
#include "penstock/schedule/schedule.h"
#include "tests/base/error_text.h"
#include "tests/plan/small_costs.h"

namespace penstock::plan_file_test {
namespace {

Plan small_plan() {
  LayerCosts costs = even_layers();
  costs.layers.resize(3);
  costs.micro_batches = {2};
  return make_plan(costs, {.schedules = {"1f1b"}, .weight_gradients = WeightGradients::fused}).plan;
}

TEST(PlanFile, reads_all_members) {
  Plan plan = small_plan();
  plan.costs = "0123456789abcdef";
  EXPECT_EQ(nlohmann::json::parse(write_plan(plan)), nlohmann::json::parse(R"({
  "penstock_plan": 1, "costs": "0123456789abcdef", "time_unit": "ms", "weight_gradients": "fused",
  "stages": [["layer0", "layer1"], ["layer2"]],
  "prediction": {"makespan": 24.0, "bubble_makespan": 0.25, "bubble_span": 0.25, "peak_activations": [2.0, 2.0],
                 "memory_bytes": [280.0, 140.0]},
  "schedule": ["penstock schedule 1", "name 1f1b", "ranks 2", "stages 2", "micro_batches 2", "rank_of_stage 0 1",
               "rank 0: 0F0 0F1 0I0 0I1 0W0-1", "rank 1: 1F0 1I0 1F1 1I1 1W0-1"]})"));
  EXPECT_EQ(read_plan(write_plan(plan)), plan);
}

/// The error for the text of a plan with `from` replaced by `to`.
template <class Error = DataError>
std::string complaint_with(const std::string& from, const std::string& to) {
  std::string text = write_plan(small_plan());
  text.replace(text.find(from), from.size(), to);
  return test::error_text<Error>([&] { read_plan(text); });
}

TEST(PlanFile, contains_the_kernel_selection) {
  LayerCosts costs = even_layers();
  costs.kernels = "tuned\nlinear 784 1024 streamed\n";
  const Plan plan = make_plan(costs).plan;
  EXPECT_EQ(plan.kernels, costs.kernels);
  EXPECT_NE(write_plan(plan).find("\"linear 784 1024 streamed\""), std::string::npos);
  EXPECT_EQ(read_plan(write_plan(plan)), plan);
}

TEST(PlanFile, gives_the_partition_as_an_argument) {
  Plan plan;
  plan.stages = {{"a", "b"}, {"c"}, {"d", "e"}};
  EXPECT_EQ(partition_of(plan), "c,d");
  plan.stages = {{"a"}};
  EXPECT_EQ(partition_of(plan), "uniform");
}

TEST(PlanFile, errors_name_the_member_and_its_possible_values) {
  EXPECT_TRUE(test::says(test::error_text<DataError>([] { read_plan("{}"); }), "the plan file", R"("penstock_plan": 1)",
                         "`penstock plan --output FILE` writes one"));
  const std::vector<std::array<const char*, 3>> cases{
      {"\"penstock_plan\": 1", "\"penstock_plan\": 9", "'s penstock_plan is 9: 1 to 1 is possible"},
      {"\"fused\"", "\"often\"", "'s weight_gradients is 'often': stream, fused and grouped are possible"},
      {"\"time_unit\"", "\"unit\"",
       " has a member 'unit', which is not known (did you mean 'time_unit'?); there are penstock_plan, costs, "},
      {",\n    [\n      \"layer2\"\n    ]", "", " has layers for 1 stages, and its schedule has 2"},
      {"\"layer2\"", "", "'s stages[1] has no layers"},
      {"0W0-1", "0W0-2", "line 7, column 25: 0W0-2 names micro-batch 2, but there are 2 micro-batches"},
      {"0W0-1", "0W0-1 0STEP", "'s schedule has messages or a step in it: a plan holds compute instructions"}};
  for (const auto& [from, to, complaint] : cases)
    EXPECT_TRUE(test::says(complaint_with(from, to), "the plan file", complaint)) << complaint_with(from, to);
  EXPECT_TRUE(test::says(complaint_with<ScheduleError>("1F1 1I1", "1I1 1F1"), "deadlock", "rank 1 |"));
}

TEST(PlanFile, refuses_to_write_unreadable_plans) {
  for (const auto spoil :
       {+[](Plan& plan) { plan.stages.pop_back(); }, +[](Plan& plan) { plan.time_unit = "\xff"; },
        +[](Plan& plan) { plan.schedule = generate("forward-only", {.ranks = 2, .micro_batches = 2}); }}) {
    Plan plan = small_plan();
    spoil(plan);
    EXPECT_THROW(write_plan(plan), DataError);
  }
}

TEST(Predict, equals_the_prediction_of_the_plan) {
  LayerCosts costs = even_layers();
  const Plan plan = make_plan(costs).plan;
  EXPECT_EQ(predict(plan, costs), plan.prediction);
  for (LayerCost& layer : costs.layers) layer.forward = layer.input_grad = layer.weight_grad = 2;
  EXPECT_DOUBLE_EQ(predict(plan, costs).makespan, 2 * plan.prediction.makespan);
}

TEST(Predict, refuses_costs_of_another_network) {
  LayerCosts costs = even_layers();
  const Plan plan = make_plan(costs).plan;
  const auto complaint_of = [&] { return test::error_text<ConfigError>([&] { predict(plan, costs); }); };
  costs.layers[2].name = "other";
  EXPECT_TRUE(test::says(complaint_of(), "'layer2' as layer 2", "the costs have 'other'", "different networks"));
  costs.layers.resize(2);
  EXPECT_TRUE(test::says(complaint_of(), "'layer2' as layer 2", "the costs have no more layers"));
  costs = even_layers();
  costs.layers.push_back({"layer8", 1, 1, 1, 10, 100, 0});
  EXPECT_TRUE(test::says(complaint_of(), "the plan has 8 layers", "the costs have 9"));
}

TuningRecord record_of(const LayerCosts& costs) {
  TuningRecord record;
  record.key = "penstock 1\nnetwork a \"quoted\" \\ line\n";
  record.measured_at = "2026-11-23 02:15:50 UTC";
  record.micro_batches = 4;
  record.partition = "layer4";
  record.kernels = "tuned\nlinear 4 4 library\n";
  record.steps = {{"'1f1b'", 1.0 / 3}, {"'gpipe'", 2}};
  record.plan = make_plan(costs).plan;
  record.costs = costs;
  return record;
}

TEST(TuningRecord, round_trips) {
  EXPECT_TRUE(rc::check("read(write(x)) == x", [] {
    const TuningRecord record = record_of(any_costs(6));
    const TuningRecord read = read_tuning_record(write_tuning_record(record));
    RC_ASSERT(read == record);
    RC_ASSERT(write_tuning_record(read) == write_tuning_record(record));
  }));
  TuningRecord record = record_of(even_layers());
  record.plan.reset();
  record.costs.reset();
  record.kernels.clear();
  record.steps.clear();
  EXPECT_EQ(read_tuning_record(write_tuning_record(record)), record);
}

TEST(TuningRecord, anything_else_is_refused) {
  const std::string text = write_tuning_record(record_of(even_layers()));
  const auto complaint_with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return test::error_text<DataError>([&] { read_tuning_record(changed); });
  };
  EXPECT_TRUE(test::says(complaint_with("\"penstock_tuning\": 1", "\"penstock_tuning\": 2"), "penstock_tuning"));
  EXPECT_TRUE(test::says(complaint_with("\"partition\"", "\"cut\""), "'cut'", "not known"));
  EXPECT_TRUE(test::says(complaint_with("\"ms\": 2", "\"ms\": -2"), "steps[1].ms"));
  EXPECT_TRUE(test::says(complaint_with("\"forward\"", "\"foreward\""), "the cost file's layers[0]"));
  // Half a file, as a full disk leaves it.
  EXPECT_THROW(read_tuning_record(text.substr(0, text.size() / 2)), DataError);
  EXPECT_THROW(read_tuning_record(""), DataError);
  TuningRecord record = record_of(even_layers());
  record.costs.reset();
  EXPECT_TRUE(test::says(test::error_text<DataError>([&] { write_tuning_record(record); }), "not both"));
}
}  // namespace
}  // namespace penstock::plan_file_test
