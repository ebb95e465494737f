// The rules of annotations, and the values sent between stages, on hand-made graphs.
#include "penstock/model/stages.h"

#include <algorithm>
#include <stdexcept>

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"

namespace penstock::test::stages_test {
namespace {

const ValueRef network_input{-1, 0};
const ValueRef second_input{-1, 1};

class HandMadeGraph {
 public:
  /// Returns the node's first output.
  ValueRef layer(const std::string& name, std::vector<ValueRef> inputs, std::optional<int> stage = {}) {
    const ValueRef output = function(name, std::move(inputs), stage);
    Node& node = graph_.nodes.back();
    auto record = std::make_shared<LayerRecord>();
    record->name = record->path = node.layer_path = name;
    node.layer = std::move(record);
    node.function = nullptr;
    return output;
  }
  ValueRef function(const std::string& name, std::vector<ValueRef> inputs, std::optional<int> stage = {}) {
    Node& node = graph_.nodes.emplace_back();
    node.name = name;
    node.inputs = std::move(inputs);
    node.stage = stage;
    node.function = [](const Tensors& x) { return Tensors{x[0]}; };
    for (const ValueRef& input : node.inputs)
      if (input.is_graph_input()) graph_.inputs = std::max(graph_.inputs, input.output + 1);
    return {static_cast<int>(graph_.nodes.size()) - 1, 0};
  }
  Graph done(std::vector<ValueRef> outputs) {
    graph_.outputs = std::move(outputs);
    return graph_;
  }

 private:
  Graph graph_;
};

using Numbers = std::vector<int>;

/// Layers whose names start with "p" have parameters; the partitioner must not be called.
const StageAdvice advice{
    .parameters = [](const Node& node) { return node.name.starts_with("p") ? 5 : 0; },
    .partition = [](const Graph&) -> std::vector<StageId> { throw std::logic_error("asked for a partition"); }};

Numbers stages_of(const Graph& graph, int stages, const StageAdvice& with = advice) {
  Numbers all;
  for (const StageId stage : assign_stages(graph, stages, with)) all.push_back(stage.value());
  return all;
}

std::string refusal(const Graph& graph, int stages) {
  return error_text<ScheduleError>([&] { assign_stages(graph, stages, advice); });
}

TEST(AssignStages, as_annotated) {
  HandMadeGraph g;
  const auto a = g.layer("pa", {network_input}, 0), b = g.layer("pb", {a}, 0), c = g.layer("pc", {b}, 2);
  EXPECT_EQ(stages_of(g.done({g.function("gelu", {c}, 3)}), 4), (Numbers{0, 0, 2, 3})) << "a function by its Cell";
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

TEST(AssignStages, layers_without_a_stage_take_that_of_their_neighbours) {
  HandMadeGraph g;
  const auto embedding = g.layer("p_embedding", {network_input});
  const auto sum = g.function("add", {embedding, g.function("positions", {network_input})});
  const auto first = g.layer("pb0", {sum}, 1), middle = g.layer("p_middle", {first}),
             second = g.layer("pb1", {middle}, 1);
  const auto third = g.layer("pb2", {second}, 2);
  const auto norm = g.layer("p_norm", {third}), head = g.layer("p_head", {norm, embedding});
  EXPECT_EQ(stages_of(g.done({head}), 3), (Numbers{1, 0, 1, 1, 1, 1, 2, 2, 2}));
}

TEST(AssignStages, names_all_layers_between_different_stages) {
  HandMadeGraph g;
  const auto a = g.layer("pa", {network_input}, 0);
  const auto b = g.layer("p1", {a}), c = g.layer("p2", {b}), d = g.layer("pd", {c}, 1), e = g.layer("pe", {d});
  const auto f = g.layer("pf", {e}), h = g.layer("ph", {f}, 2);
  EXPECT_EQ(refusal(g.done({h}), 3),
            "the layers p1-2, pe, pf with parameters lie between different stages ('pa' has 0, 'pd' has 1): assign a "
            "pipeline_stage to each of them");
}

TEST(AssignStages, refuses_a_stage_outside_the_pipeline) {
  for (const int stage : {-1, 2, 7}) {
    HandMadeGraph g;
    const auto graph = g.done({g.layer("pa", {network_input}, stage)});
    EXPECT_EQ(refusal(graph, 2),
              say("layer 'pa' has pipeline_stage ", stage, ", but the pipeline has 2 stages (stages are 0..1)"));
    EXPECT_EQ(refusal(graph, 0), "a pipeline has at least one stage, not 0");
  }
}

TEST(AssignStages, refuses_stages_against_the_data_flow) {
  HandMadeGraph g, other;
  const auto between = g.function("relu", {g.layer("pa", {network_input}, 2)});
  EXPECT_EQ(refusal(g.done({g.layer("pb", {between}, 1)}), 3),
            "layer 'pb' on stage 1 needs 'relu' on stage 2: stages must not decrease along the data flow");
  const auto a = other.layer("pa", {network_input}, 0), late = other.layer("pb", {a}, 2);
  EXPECT_EQ(refusal(other.done({other.function("add", {a, late, network_input}, 1)}), 3),
            "function 'add' on stage 1 needs 'pb' on stage 2: stages must not decrease along the data flow");
}

TEST(AssignStages, without_annotations_the_partitioner_chooses) {
  HandMadeGraph g;
  const auto a = g.layer("pa", {network_input});
  const auto graph = g.done({g.layer("pb", {a})});
  StageAdvice partitioner = advice;
  partitioner.partition = [](const Graph& whole) { return std::vector<StageId>(whole.nodes.size(), StageId(1)); };
  EXPECT_EQ(stages_of(graph, 2, partitioner), (Numbers{1, 1}));
}

StagedGraph partition(const Graph& graph, const std::vector<int>& stage_of_node, int stages) {
  std::vector<StageId> ids;
  for (int stage : stage_of_node) ids.emplace_back(stage);
  return partition_graph(graph, ids, stages);
}

/// "0>1: a b | 0>2: a": every link with its values, from the sends.
std::string links(const StagedGraph& staged) {
  std::string text;
  for (const StagePart& part : staged.parts)
    for (const Port& port : part.sends) {
      text += say(text.empty() ? "" : " | ", part.id.value(), ">", port.peer.value(), ":");
      for (const ValueRef& value : port.values) text += say(" ", staged.graph.name_of(value));
    }
  return text;
}

/// "flatten a | b": the nodes of every stage.
std::string nodes(const StagedGraph& staged) {
  std::string text;
  for (const StagePart& part : staged.parts) {
    if (part.id != StageId(0)) text += " | ";
    for (std::size_t i = 0; i < part.nodes.size(); ++i)
      text += (i ? ", " : "") + staged.graph.nodes[static_cast<std::size_t>(part.nodes[i])].name;
  }
  return text;
}

/// Expects these nodes and links, and that receives and sends correspond, with the same values in the same order.
void expect_stages(const StagedGraph& staged, const std::string& expected_nodes, const std::string& expected_links) {
  EXPECT_EQ(nodes(staged), expected_nodes);
  EXPECT_EQ(links(staged), expected_links);
  std::size_t sends = 0, receives = 0;
  for (const StagePart& consumer : staged.parts)
    for (const Port& receive : consumer.receives) {
      ++receives;
      const auto& offers = staged.parts.at(receive.peer.index()).sends;
      const auto match =
          std::find_if(offers.begin(), offers.end(), [&](const Port& p) { return p.peer == consumer.id; });
      ASSERT_NE(match, offers.end());
      EXPECT_EQ(match->values, receive.values);
    }
  for (const StagePart& producer : staged.parts) sends += producer.sends.size();
  EXPECT_EQ(sends, receives);
}

TEST(PartitionGraph, a_chain) {
  HandMadeGraph g;
  const auto a = g.layer("a", {network_input}), b = g.layer("b", {a}), c = g.layer("c", {b});
  const StagedGraph staged = partition(g.done({c}), {0, 0, 1}, 2);
  expect_stages(staged, "a, b | c", "0>1: b");
  EXPECT_EQ(staged.stage_count(), 2);
  EXPECT_EQ(staged.parts[0].graph_inputs, (std::vector<int>{0}));
  EXPECT_TRUE(staged.parts[1].graph_inputs.empty());
  EXPECT_TRUE(staged.parts[0].outputs.empty());
  EXPECT_EQ(staged.parts[1].outputs, (std::vector<ValueRef>{c}));
  EXPECT_TRUE(staged.warnings.empty());
}

TEST(PartitionGraph, a_skip_is_sent_from_producer_to_consumer) {
  HandMadeGraph g;
  const auto a = g.layer("a", {network_input}), b = g.layer("b", {a}), c = g.layer("c", {b});
  const auto sum = g.function("add", {c, a});
  expect_stages(partition(g.done({sum}), {0, 1, 2, 3}, 4), "a | b | c | add", "0>1: a | 0>3: a | 1>2: b | 2>3: c");
}

TEST(PartitionGraph, sends_each_value_once_per_link) {
  HandMadeGraph g;
  const auto a = g.layer("a", {network_input}), b = g.layer("b", {a});
  const auto first = g.function("mul", {b, a}), second = g.function("sub", {a, b});
  expect_stages(partition(g.done({first, second}), {0, 0, 1, 1}, 2), "a, b | mul, sub", "0>1: a b");
}

TEST(PartitionGraph, sends_every_output_to_the_last_stage) {
  HandMadeGraph g;
  const auto a = g.layer("a", {network_input}), b = g.layer("b", {a}), c = g.layer("c", {b});
  const StagedGraph staged = partition(g.done({c, a, network_input}), {0, 1, 2}, 3);
  expect_stages(staged, "a | b | c", "0>1: a | 0>2: a | 1>2: b");
  EXPECT_EQ(staged.parts[2].graph_inputs, (std::vector<int>{0}));
  EXPECT_EQ(staged.parts[2].outputs, (std::vector<ValueRef>{c, a, network_input}));
}

TEST(PartitionGraph, later_stages_read_inputs_of_the_network_themselves) {
  HandMadeGraph g;
  const auto a = g.layer("a", {network_input});
  const auto masked = g.function("mul", {a, second_input});
  const StagedGraph staged = partition(g.done({masked}), {0, 1}, 2);
  expect_stages(staged, "a | mul", "0>1: a");
  EXPECT_EQ(staged.parts[0].graph_inputs, (std::vector<int>{0}));
  EXPECT_EQ(staged.parts[1].graph_inputs, (std::vector<int>{1}));
}

TEST(PartitionGraph, an_empty_stage_passes_on_values_that_cross_it) {
  HandMadeGraph g;
  const auto a = g.layer("a", {network_input}), b = g.layer("b", {a});
  const auto sum = g.function("add", {b, a});
  const StagedGraph staged = partition(g.done({sum}), {0, 0, 2}, 3);
  expect_stages(staged, "a, b | pass a through stage 1, pass b through stage 1 | add",
                "0>1: a b | 1>2: pass a through stage 1 pass b through stage 1");
  ASSERT_EQ(staged.warnings.size(), 1U);
  EXPECT_TRUE(says(staged.warnings[0], "stage 1 of 3", "no layers")) << staged.warnings[0];
  // The inputs (b, a) of "add" keep their order.
  const Node& add = staged.graph.nodes[2];
  EXPECT_EQ(staged.graph.name_of(add.inputs[0]), "pass b through stage 1");
  EXPECT_EQ(staged.graph.name_of(add.inputs[1]), "pass a through stage 1");
}

TEST(PartitionGraph, empty_first_stages_pass_on_the_input) {
  HandMadeGraph g;
  const auto a = g.layer("a", {network_input});
  const StagedGraph staged = partition(g.done({a}), {2}, 3);
  expect_stages(staged, "pass input 0 through stage 0 | pass input 0 through stage 1 | a",
                "0>1: pass input 0 through stage 0 | 1>2: pass input 0 through stage 1");
  EXPECT_EQ(staged.parts[0].graph_inputs, (std::vector<int>{0}));
  EXPECT_TRUE(staged.parts[2].graph_inputs.empty());
  EXPECT_EQ(staged.warnings.size(), 2U);
}

TEST(PartitionGraph, an_empty_last_stage_returns_the_outputs) {
  HandMadeGraph g;
  const auto a = g.layer("a", {network_input}), b = g.layer("b", {a});
  const StagedGraph staged = partition(g.done({b, a}), {0, 0}, 2);
  expect_stages(staged, "a, b | pass a through stage 1, pass b through stage 1", "0>1: a b");
  ASSERT_EQ(staged.parts[1].outputs.size(), 2U);
  EXPECT_EQ(staged.graph.name_of(staged.parts[1].outputs[0]), "pass b through stage 1");
  EXPECT_EQ(staged.graph.name_of(staged.parts[1].outputs[1]), "pass a through stage 1");
  EXPECT_EQ(staged.graph.outputs, staged.parts[1].outputs);
}

TEST(PartitionGraph, passing_through_changes_nothing) {
  HandMadeGraph g;
  const auto a = g.layer("a", {network_input});
  const StagedGraph staged = partition(g.done({a}), {1}, 2);
  const Node& pass = staged.graph.nodes[1];
  const torch::Tensor x = torch::randn({2, 3}).requires_grad_(true);
  const torch::Tensor y = pass.function({x}).at(0);
  EXPECT_TRUE(torch::equal(x, y));
  y.backward(torch::full_like(y, 3));
  EXPECT_TRUE(torch::equal(x.grad(), torch::full_like(x, 3)));
  EXPECT_FALSE(pass.function({torch::Tensor()}).at(0).defined());  // an undefined tensor stays undefined
}

TEST(PartitionGraph, refuses_an_invalid_partition) {
  HandMadeGraph g;
  const auto a = g.layer("first", {network_input});
  const auto graph = g.done({g.layer("second", {a})});
  const auto refusal = [&](const std::vector<int>& stage_of_node) {
    return error_text<ScheduleError>([&] { partition(graph, stage_of_node, 2); });
  };
  EXPECT_EQ(refusal({0}), "the partition names 1 stages for a network of 2 nodes: one for each node");
  EXPECT_EQ(refusal({0, 2}), "the partition puts 'second' on stage 2, but there are 2");
  EXPECT_EQ(refusal({-1, 0}), "the partition puts 'first' on stage -1, but there are 2");
  EXPECT_EQ(refusal({1, 0}),
            "the partition puts 'second' on stage 0, before 'first', which it needs: stages must not "
            "decrease along the data flow");
}

}  // namespace
}  // namespace penstock::test::stages_test
