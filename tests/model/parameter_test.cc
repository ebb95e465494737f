// Raw parameters and ties in graphs and stages.
#include "penstock/model/layer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/model/model.h"
#include "penstock/model/stages.h"
#include "tests/base/error_text.h"

namespace penstock::test::parameter_test {
namespace {

struct Embedding : Cell {
  Parameter table = add_parameter("table", [] { return torch::randn({5, 4}); });
  Values forward_many(Values x) override { return {gather(table.value(), x[0]), table.value()}; }
};

struct Network : Cell {
  Embedding embedding;
  Layer body = add("body", [] { return torch::nn::Linear(4, 4); });
  Layer head = add("head", [] { return torch::nn::Linear(4, 4); });
  Network() { add("embedding", embedding); }
  Value forward(Value x) override {
    const Values both = embedding(Values{x});
    return matmul(head(body(both[0])), both[1], {.transpose_b = true});
  }
};

StageAdvice no_advice() {
  return {[](const Node& node) { return node.is_layer() ? 1 : 0; },
          [](const Graph& graph) { return std::vector<StageId>(graph.nodes.size(), StageId(0)); }};
}

StagedGraph partition(Network& network, int stages) {
  Graph graph = trace_graph(network);
  std::vector<StageId> stage_of_node = assign_stages(graph, stages, no_advice());
  return partition_graph(std::move(graph), std::move(stage_of_node), stages);
}

TEST(RawParameter, has_a_node_before_each_user) {
  Network network;
  std::vector<std::string> names;
  for (const Node& node : trace_graph(network).nodes) names.push_back(node.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"embedding.table", "gather", "body", "head", "embedding.table_2", "matmul"}));
}

TEST(RawParameter, is_held_by_the_stages_that_use_it_and_not_sent) {
  Network network;
  network.embedding.pipeline_stage = 0;
  network.body.pipeline_stage = 1;
  network.head.pipeline_stage = 2;
  const StagedGraph staged = partition(network, 3);
  // The output of gather is sent to body; the table is not sent.
  ASSERT_EQ(staged.parts[0].sends.size(), 1u);
  for (const Port& port : staged.parts[0].sends)
    for (const ValueRef& value : port.values) EXPECT_EQ(staged.graph.name_of(value), "gather");
  const Node& table = staged.graph.nodes.front();
  const ParameterUses uses = uses_of(staged, *table.layer, raw_parameter);
  ASSERT_EQ(uses.list.size(), 2u);
  EXPECT_EQ(uses.owner(), StageId(0));
  EXPECT_TRUE(uses.is_tied());
  EXPECT_TRUE(uses.are_on(StageId(2)));
  EXPECT_FALSE(uses.are_on(StageId(1)));
}

TEST(RawParameter, is_named_by_its_path_and_trains_standalone) {
  Network network;
  const auto parameters = network.named_parameters(1);
  EXPECT_EQ(parameters.back().first, "embedding.table");
  network(Value(torch::tensor({1, 3}))).tensor().sum().backward();
  EXPECT_TRUE(parameters.back().second.grad().defined());
}

struct TwoHeads : Cell {
  Layer first = add("first", [] { return torch::nn::Linear(3, 3); });
  Layer second = add("second", [] { return torch::nn::Linear(3, 3); });
  TwoHeads() { second.tie("weight", first, "weight"); }
  Value forward(Value x) override { return second(first(x)); }
};

TEST(TiedParameters, give_the_owner_the_gradient_of_all_uses_in_a_plain_loop) {
  TwoHeads network;
  const auto parameters = network.named_parameters(1);
  ASSERT_EQ(parameters.size(), 3u);  // second.weight is first.weight
  const torch::Tensor x = torch::randn({2, 3});
  network(Value(x)).tensor().sum().backward();
  const torch::Tensor w = parameters[0].second.detach().clone().requires_grad_(true);
  (x.matmul(w.t()) + parameters[1].second.detach()).matmul(w.t()).sum().backward();
  EXPECT_TRUE(torch::allclose(parameters[0].second.grad(), w.grad()));
}

TEST(TiedParameters, to_a_layer_of_another_network_are_refused) {
  TwoHeads other;
  Network network;
  network.head.tie("bias", other.first, "bias");
  EXPECT_EQ(error_text<ScheduleError>([&] { trace_graph(network); }),
            "layer 'first' is used by 'head.bias' but belongs to a Cell that was never added: call add(name, cell)");
}

TEST(TiedParameters, of_two_parameters_of_one_layer_are_refused) {
  Network network;
  network.head.tie("weight", network.embedding.table);
  network.head.tie("bias", network.embedding.table);
  EXPECT_NE(error_text<ScheduleError>([&] { trace_graph(network); }).find("two parameters of one layer cannot be tied"),
            std::string::npos);
}

}  // namespace
}  // namespace penstock::test::parameter_test
