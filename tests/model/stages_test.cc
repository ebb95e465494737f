// The values sent between stages, on hand-made graphs.
#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/model/stages.h"
#include "tests/base/error_text.h"
#include "tests/model/hand_made_graph.h"

namespace penstock::test::stages_test {
namespace {

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

/// Checks that receives and sends correspond, with the same values in the same order.
void expect_matched_ports(const StagedGraph& staged) {
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
  EXPECT_EQ(nodes(staged), "a, b | c");
  EXPECT_EQ(links(staged), "0>1: b");
  EXPECT_EQ(staged.stage_count(), 2);
  EXPECT_EQ(staged.parts[0].graph_inputs, (std::vector<int>{0}));
  EXPECT_TRUE(staged.parts[1].graph_inputs.empty());
  EXPECT_TRUE(staged.parts[0].outputs.empty());
  EXPECT_EQ(staged.parts[1].outputs, (std::vector<ValueRef>{c}));
  EXPECT_TRUE(staged.warnings.empty());
  expect_matched_ports(staged);
}

TEST(PartitionGraph, a_skip_is_sent_from_producer_to_consumer) {
  HandMadeGraph g;
  const auto a = g.layer("a", {network_input}), b = g.layer("b", {a}), c = g.layer("c", {b});
  const auto sum = g.function("add", {c, a});
  const StagedGraph staged = partition(g.done({sum}), {0, 1, 2, 3}, 4);
  EXPECT_EQ(links(staged), "0>1: a | 0>3: a | 1>2: b | 2>3: c");
  EXPECT_EQ(nodes(staged), "a | b | c | add");
  expect_matched_ports(staged);
}

TEST(PartitionGraph, sends_each_value_once_per_link) {
  HandMadeGraph g;
  const auto a = g.layer("a", {network_input}), b = g.layer("b", {a});
  const auto first = g.function("mul", {b, a}), second = g.function("sub", {a, b});
  const StagedGraph staged = partition(g.done({first, second}), {0, 0, 1, 1}, 2);
  EXPECT_EQ(links(staged), "0>1: a b");
  expect_matched_ports(staged);
}

TEST(PartitionGraph, sends_every_output_to_the_last_stage) {
  HandMadeGraph g;
  const auto a = g.layer("a", {network_input}), b = g.layer("b", {a}), c = g.layer("c", {b});
  const StagedGraph staged = partition(g.done({c, a, network_input}), {0, 1, 2}, 3);
  EXPECT_EQ(links(staged), "0>1: a | 0>2: a | 1>2: b");
  EXPECT_EQ(staged.parts[2].graph_inputs, (std::vector<int>{0}));
  EXPECT_EQ(staged.parts[2].outputs, (std::vector<ValueRef>{c, a, network_input}));
}

TEST(PartitionGraph, later_stages_read_inputs_of_the_network_themselves) {
  HandMadeGraph g;
  const auto a = g.layer("a", {network_input});
  const auto masked = g.function("mul", {a, second_input});
  const StagedGraph staged = partition(g.done({masked}), {0, 1}, 2);
  EXPECT_EQ(links(staged), "0>1: a");
  EXPECT_EQ(staged.parts[0].graph_inputs, (std::vector<int>{0}));
  EXPECT_EQ(staged.parts[1].graph_inputs, (std::vector<int>{1}));
}

TEST(PartitionGraph, an_empty_stage_passes_on_values_that_cross_it) {
  HandMadeGraph g;
  const auto a = g.layer("a", {network_input}), b = g.layer("b", {a});
  const auto sum = g.function("add", {b, a});
  const StagedGraph staged = partition(g.done({sum}), {0, 0, 2}, 3);
  EXPECT_EQ(nodes(staged), "a, b | pass a through stage 1, pass b through stage 1 | add");
  EXPECT_EQ(links(staged), "0>1: a b | 1>2: pass a through stage 1 pass b through stage 1");
  ASSERT_EQ(staged.warnings.size(), 1U);
  EXPECT_TRUE(says(staged.warnings[0], "stage 1 of 3", "no layers")) << staged.warnings[0];
  expect_matched_ports(staged);

  // The inputs (b, a) of "add" keep their order.
  const Node& add = staged.graph.nodes[2];
  EXPECT_EQ(staged.graph.name_of(add.inputs[0]), "pass b through stage 1");
  EXPECT_EQ(staged.graph.name_of(add.inputs[1]), "pass a through stage 1");
}

TEST(PartitionGraph, empty_first_stages_pass_on_the_input) {
  HandMadeGraph g;
  const auto a = g.layer("a", {network_input});
  const StagedGraph staged = partition(g.done({a}), {2}, 3);
  EXPECT_EQ(nodes(staged), "pass input 0 through stage 0 | pass input 0 through stage 1 | a");
  EXPECT_EQ(links(staged), "0>1: pass input 0 through stage 0 | 1>2: pass input 0 through stage 1");
  EXPECT_EQ(staged.parts[0].graph_inputs, (std::vector<int>{0}));
  EXPECT_TRUE(staged.parts[2].graph_inputs.empty());
  EXPECT_EQ(staged.warnings.size(), 2U);
  expect_matched_ports(staged);
}

TEST(PartitionGraph, an_empty_last_stage_returns_the_outputs) {
  HandMadeGraph g;
  const auto a = g.layer("a", {network_input}), b = g.layer("b", {a});
  const StagedGraph staged = partition(g.done({b, a}), {0, 0}, 2);
  EXPECT_EQ(nodes(staged), "a, b | pass a through stage 1, pass b through stage 1");
  ASSERT_EQ(staged.parts[1].outputs.size(), 2U);
  EXPECT_EQ(staged.graph.name_of(staged.parts[1].outputs[0]), "pass b through stage 1");
  EXPECT_EQ(staged.graph.name_of(staged.parts[1].outputs[1]), "pass a through stage 1");
  EXPECT_EQ(staged.graph.outputs, staged.parts[1].outputs);
  expect_matched_ports(staged);
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
