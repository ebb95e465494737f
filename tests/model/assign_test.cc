// The rules of annotations, one test each (model/stages.h).
#include <stdexcept>

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/model/stages.h"
#include "tests/base/error_text.h"
#include "tests/model/hand_made_graph.h"

namespace penstock::test::assign_test {
namespace {

using Numbers = std::vector<int>;

/// Layers whose names start with "p" have parameters; the partitioner must not be called.
const StageAdvice advice{
    .parameters = [](const Node& node) { return node.name.starts_with("p") ? 5 : 0; },
    .partition = [](const Graph&) -> std::vector<StageId> { throw std::logic_error("asked for a partition"); }};

Numbers stages_of(const Graph& graph, int stages) { return numbers(assign_stages(graph, stages, advice)); }

std::string refusal(const Graph& graph, int stages) {
  return error_text<ScheduleError>([&] { assign_stages(graph, stages, advice); });
}

TEST(AssignStages, as_annotated) {
  HandMadeGraph g;
  const auto a = g.layer("pa", {network_input}, 0);
  const auto b = g.layer("pb", {a}, 0);
  const auto c = g.layer("pc", {b}, 2);
  EXPECT_EQ(stages_of(g.done({c}), 3), (Numbers{0, 0, 2}));
}

TEST(AssignStages, nodes_without_parameters_follow_their_latest_input) {
  HandMadeGraph g;
  const auto flat = g.function("flatten", {network_input});
  const auto a = g.layer("pa", {flat}, 0);
  const auto activation = g.layer("relu", {a});
  const auto b = g.layer("pb", {activation}, 1);
  const auto early = g.function("relu", {flat});
  const auto sum = g.function("add", {b, early});
  const auto c = g.layer("pc", {sum}, 2);
  const auto joined = g.function("concat", {b, c, early});
  EXPECT_EQ(stages_of(g.done({joined}), 3), (Numbers{0, 0, 0, 1, 0, 1, 2, 2}));
}

TEST(AssignStages, inputs_of_the_network_count_as_stage_0) {
  HandMadeGraph g;
  const auto a = g.layer("pa", {network_input}, 1);
  const auto mask = g.function("mask", {second_input});
  const auto b = g.layer("pb", {a, mask}, 1);
  EXPECT_EQ(stages_of(g.done({b}), 2), (Numbers{1, 0, 1}));
}

TEST(AssignStages, functions_can_be_annotated_through_their_cell) {
  HandMadeGraph g;
  const auto a = g.layer("pa", {network_input}, 0);
  const auto b = g.function("gelu", {a}, 1);
  EXPECT_EQ(stages_of(g.done({b}), 2), (Numbers{0, 1}));
}

TEST(AssignStages, refuses_one_layer_without_a_stage) {
  HandMadeGraph g;
  const auto a = g.layer("pa", {network_input}, 1);
  const auto b = g.layer("pb", {a});
  EXPECT_EQ(refusal(g.done({b}), 2),
            "layer 'pb' has parameters but no pipeline_stage, while 'pa' has 1: assign a stage to 'pb' too");
}

TEST(AssignStages, refuses_a_stage_outside_the_pipeline) {
  for (const int stage : {-1, 2, 7}) {
    HandMadeGraph g;
    const auto graph = g.done({g.layer("pa", {network_input}, stage)});
    EXPECT_EQ(refusal(graph, 2),
              say("layer 'pa' has pipeline_stage ", stage, ", but the pipeline has 2 stages (stages are 0..1)"));
  }
}

TEST(AssignStages, refuses_stages_against_the_data_flow) {
  HandMadeGraph g;
  const auto a = g.layer("pa", {network_input}, 2);
  const auto between = g.function("relu", {a});
  const auto b = g.layer("pb", {between}, 1);
  EXPECT_EQ(refusal(g.done({b}), 3),
            "layer 'pb' on stage 1 needs 'relu' on stage 2: stages must not decrease along the data flow");
}

TEST(AssignStages, names_the_input_on_a_later_stage) {
  HandMadeGraph g;
  const auto a = g.layer("pa", {network_input}, 0);
  const auto late = g.layer("pb", {a}, 2);
  const auto function = g.function("add", {a, late, network_input}, 1);
  EXPECT_EQ(refusal(g.done({function}), 3),
            "function 'add' on stage 1 needs 'pb' on stage 2: stages must not decrease along the data flow");
}

TEST(AssignStages, without_annotations_the_partitioner_chooses) {
  HandMadeGraph g;
  const auto a = g.layer("pa", {network_input});
  const auto graph = g.done({g.layer("pb", {a})});
  StageAdvice partitioner = advice;
  partitioner.partition = [](const Graph& whole) { return std::vector<StageId>(whole.nodes.size(), StageId(1)); };
  EXPECT_EQ(numbers(assign_stages(graph, 2, partitioner)), (Numbers{1, 1}));
}

TEST(AssignStages, refuses_zero_stages) {
  HandMadeGraph g;
  EXPECT_EQ(refusal(g.done({g.layer("pa", {network_input}, 0)}), 0), "a pipeline has at least one stage, not 0");
}

}  // namespace
}  // namespace penstock::test::assign_test
