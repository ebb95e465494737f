// Tracing: names, stages, several values, and errors of forward.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/model/graph.h"
#include "penstock/model/model.h"
#include "penstock/model/stages.h"
#include "tests/base/error_text.h"

namespace penstock::test::graph_test {
namespace {

const auto linear = [] { return torch::nn::Linear(4, 4); };

std::vector<std::string> names(const Graph& graph) {
  std::vector<std::string> all;
  for (const Node& node : graph.nodes) all.push_back(node.name);
  return all;
}

using Names = std::vector<std::string>;

/// A Cell from a function: `make` adds layers and returns forward.
class Written : public Cell {
 public:
  using Cell::add;
  std::function<Values(Values)> body;
  Values forward_many(Values inputs) override { return body(std::move(inputs)); }
};

std::string refusal_of(Cell& network, int inputs = 1) {
  return error_text<ScheduleError>([&] { trace_graph(network, inputs); });
}

struct TwoLayers : Cell {
  Layer first = add("first", [] { return torch::nn::Linear(4, 4); });
  Layer second = add("second", [] { return torch::nn::Linear(4, 2); });
  Value forward(Value x) override { return second(relu(first(flatten(x, 1)))); }
};

TEST(LayerShapes, are_learnt_once_from_the_present_factory) {
  TwoLayers network;
  int built = 0;
  const auto shapes_of_second = [&] {
    const Graph graph = trace_graph(network);
    return shapes_of(*graph.nodes.back().layer).parameters["weight"];
  };
  const auto with_outputs = [&](std::int64_t outputs) {
    network.change_layers([&](const std::string&, const LayerFactory&) {
      return layer_factory([&built, outputs] {
        ++built;
        return torch::nn::Linear(4, outputs);
      });
    });
  };
  for (const std::int64_t outputs : {2, 5}) {
    with_outputs(outputs);
    for (int time = 0; time < 2; ++time) {
      EXPECT_EQ(shapes_of_second().sizes(), torch::IntArrayRef({outputs, 4}));
      EXPECT_TRUE(shapes_of_second().is_meta() && shapes_of_second().requires_grad());
    }
  }
  EXPECT_EQ(built, 2);
}

TEST(TraceGraph, nodes_in_execution_order) {
  TwoLayers network;
  network.second.pipeline_stage = 3;
  const Graph graph = trace_graph(network);
  EXPECT_EQ(names(graph), (Names{"flatten", "first", "relu", "second"}));
  EXPECT_EQ(graph.inputs, 1);
  EXPECT_TRUE(graph.nodes[1].is_layer());
  EXPECT_FALSE(graph.nodes[2].is_layer());
  EXPECT_EQ(graph.nodes[0].inputs, (std::vector<ValueRef>{{-1, 0}}));
  EXPECT_EQ(graph.nodes[3].inputs, (std::vector<ValueRef>{{2, 0}}));
  EXPECT_EQ(graph.outputs, (std::vector<ValueRef>{{3, 0}}));
  EXPECT_EQ(graph.nodes[3].stage, 3);
  EXPECT_EQ(graph.nodes[1].stage, std::nullopt);
  EXPECT_EQ(graph.name_of({-1, 0}), "input 0");
  EXPECT_EQ(graph.name_of({3, 0}), "second");
}

TEST(TraceGraph, numbers_do_not_depend_on_the_order_of_calls) {
  std::vector<std::map<std::string, std::vector<std::string>>> inputs_of(2);  // by name of the node
  for (const bool left_first : {true, false}) {
    Written network;
    const Layer fc = network.add("fc", linear);
    network.body = [&](Values x) -> Values {
      // As a compiler may evaluate relu(fc(a)) * relu(fc(b)), once for a first and once for b.
      const Value a = tanh(x[0]), b = sigmoid(x[0]);
      const Value first = relu(fc(left_first ? a : b)), second = relu(fc(left_first ? b : a));
      return {left_first ? first * second : second * first};
    };
    const Graph graph = trace_graph(network);
    for (const Node& node : graph.nodes)
      for (const ValueRef& input : node.inputs) inputs_of[left_first][node.name].push_back(graph.name_of(input));
  }
  EXPECT_EQ(inputs_of[0], inputs_of[1]);
  EXPECT_EQ(inputs_of[1].at("fc"), (Names{"tanh"}));
  EXPECT_EQ(inputs_of[1].at("mul"), (Names{"relu", "relu_2"}));
}

TEST(TraceGraph, nodes_know_their_cell_and_block) {
  struct Block : Cell {
    Layer inside = add("inside", linear);
    bool adds_first = false;
    Value forward(Value x) override { return adds_first ? inside(x + 1) : inside(x) + x; }
  };
  struct Deep : Cell {
    Layer embed = add("embed", linear);
    Block first, second;
    Deep() {
      add("first", first);
      add("second", second);
      first.is_block = second.is_block = is_block = true;
      second.adds_first = true;
    }
    Value forward(Value x) override { return relu(second(second(first(embed(x))))); }
  } network;
  const Graph graph = trace_graph(network);
  Names cells, blocks;
  for (const Node& node : graph.nodes) {
    cells.push_back(node.cell);
    blocks.push_back(node.in_block);
  }
  EXPECT_EQ(cells, (Names{"", "first", "first", "second", "second", "second", "second", ""}));
  EXPECT_EQ(blocks, (Names{"", "first", "first", "second", "second", "second_2", "second_2", ""}))
      << "the whole network is not a block";
  struct Outer : Cell {
    Deep deep;
    Outer() { add("deep", deep); }
    Value forward(Value x) override { return deep(x); }
  } outer;
  for (const Node& node : trace_graph(outer).nodes) EXPECT_EQ(node.in_block, "deep") << "the outermost counts";
}

TEST(TraceGraph, repeated_calls_are_numbered) {
  Written network;
  const Layer fc = network.add("fc", linear);
  network.body = [&](Values x) -> Values { return {relu(fc(relu(fc(relu(fc(x[0]))))))}; };
  const Graph graph = trace_graph(network);
  EXPECT_EQ(names(graph), (Names{"fc", "relu", "fc_2", "relu_2", "fc_3", "relu_3"}));
  EXPECT_EQ(graph.nodes[2].layer_path, "fc");
  EXPECT_EQ(graph.nodes[0].layer, graph.nodes[4].layer);
}

TEST(TraceGraph, no_two_nodes_share_a_name_and_layers_keep_theirs) {
  Written network;
  const Layer called_relu = network.add("relu", linear);
  const Layer called_relu_2 = network.add("relu_2", linear);
  network.body = [&](Values x) -> Values { return {called_relu_2(relu(called_relu(relu(x[0]))))}; };
  EXPECT_EQ(names(trace_graph(network)), (Names{"relu_3", "relu", "relu_4", "relu_2"}));
}

struct Block : Cell {
  Layer fc = add("fc", [] { return torch::nn::Linear(4, 4); });
  Value forward(Value x) override { return relu(fc(x)); }
};

struct Nested : Cell {
  Nested() {
    add("body", body);
    add("head", head);
  }
  Value forward(Value x) override { return head(body(flatten(x, 1))); }
  Block body, head;
};

TEST(NestedCells, full_names) {
  Nested network;
  const Graph graph = trace_graph(network);
  EXPECT_EQ(names(graph), (Names{"flatten", "body.fc", "relu", "head.fc", "relu_2"}));
  EXPECT_EQ(graph.nodes[3].layer_path, "head.fc");
}

TEST(NestedCells, inherit_the_stage_of_the_enclosing_cell) {
  Nested network;
  network.body.pipeline_stage = 0;
  network.head.pipeline_stage = 1;
  network.head.fc.pipeline_stage = 1;  // the same stage
  const Graph graph = trace_graph(network);
  EXPECT_EQ(graph.nodes[0].stage, std::nullopt);  // flatten, between the Cells
  EXPECT_EQ(graph.nodes[1].stage, 0);
  EXPECT_EQ(graph.nodes[3].stage, 1);
  EXPECT_EQ(graph.nodes[4].stage, 1);  // a function belongs to the Cell that calls it
}

TEST(NestedCells, a_cell_with_only_functions_has_a_stage) {
  struct Activation : Cell {
    Value forward(Value x) override { return relu(x); }
  } activation;
  Written network;
  const Layer fc = network.add("fc", linear);
  network.add("activation", activation);
  activation.pipeline_stage = 2;
  network.body = [&](Values x) -> Values { return {flatten(activation(fc(x[0])), 1)}; };
  const Graph graph = trace_graph(network);
  EXPECT_EQ(graph.nodes[1].stage, 2);
  EXPECT_EQ(graph.nodes[2].stage, std::nullopt);
}

TEST(NestedCells, contradictions_name_both_annotated_parts) {
  Nested other;
  other.pipeline_stage = 2;
  other.body.pipeline_stage = 1;
  EXPECT_EQ(refusal_of(other),
            "Cell 'body' has pipeline_stage 1, but the network around it has 2: remove one of the two");
  Nested inner;
  Written network;
  network.add("encoder", inner);
  network.body = [&](Values x) -> Values { return {inner(x[0])}; };
  inner.pipeline_stage = 1;
  inner.head.fc.pipeline_stage = 3;
  EXPECT_EQ(
      refusal_of(network),
      "layer 'encoder.head.fc' has pipeline_stage 3, but the Cell 'encoder' around it has 1: remove one of the two");
}

TEST(NestedCells, a_cell_is_added_only_once) {
  Written network;
  Block block;
  network.add("a", block);
  network.add("b", block);
  network.body = [&](Values x) -> Values { return {block(block(x[0]))}; };
  EXPECT_EQ(refusal_of(network), "Cell 'b' was added before, as 'a': add it once, and call it as often as needed");
}

TEST(Cells, names_are_checked) {
  Written network;
  Block block;
  network.add("fc", linear);
  EXPECT_TRUE(says(error_text<ScheduleError>([&] { network.add("fc", linear); }), "two layers", "'fc'"));
  EXPECT_TRUE(says(error_text<ScheduleError>([&] { network.add("fc", block); }), "two layers", "'fc'"));
  EXPECT_TRUE(says(error_text<ScheduleError>([&] { network.add("a.b", linear); }), "'a.b'", "no '.'"));
  EXPECT_TRUE(says(error_text<ScheduleError>([&] { network.add("", block); }), "''", "not empty"));
}

TEST(Cells, several_inputs_and_outputs) {
  Written network;
  const Layer fc = network.add("fc", linear);
  network.body = [&](Values x) -> Values {
    Values halves = apply(
        "halves", [](const Tensors& t) { return t[0].chunk(2, 1); }, {x[1]}, 2);
    return {fc(x[0]), concat({halves[1], halves[0]}, 1)};
  };
  const Graph graph = trace_graph(network, 2);
  EXPECT_EQ(graph.inputs, 2);
  EXPECT_EQ(graph.nodes[0].outputs, 2);
  EXPECT_EQ(graph.nodes[2].inputs, (std::vector<ValueRef>{{0, 1}, {0, 0}}));
  EXPECT_EQ(graph.outputs, (std::vector<ValueRef>{{1, 0}, {2, 0}}));
  EXPECT_EQ(graph.name_of({0, 1}), "halves:1");
}

TEST(Cells, one_or_many_values) {
  TwoLayers one;
  EXPECT_TRUE(says(refusal_of(one, 2), "called with 2 values", "forward_many"));
  EXPECT_TRUE(says(refusal_of(one, 0), "at least one input", "0"));
  Written two;
  two.body = [](Values x) -> Values { return {x[0], x[0]}; };
  EXPECT_TRUE(says(error_text<ScheduleError>([&] { two(Value(torch::zeros({1}))); }), "returns 2", "list of values"));
  struct Nothing : Cell {
  } nothing;
  EXPECT_TRUE(says(refusal_of(nothing), "overrides neither"));
  two.body = [](Values) -> Values { return {}; };
  EXPECT_TRUE(says(refusal_of(two), "returns nothing"));
  two.body = [](Values) -> Values { return {torch::zeros({1})}; };
  EXPECT_TRUE(says(refusal_of(two), "does not depend on its input"));
}

TEST(Cells, refuses_a_layer_of_a_cell_that_was_not_added) {
  Block stranger;
  Written network;
  network.body = [&](Values x) -> Values { return {stranger(x[0])}; };
  EXPECT_TRUE(says(refusal_of(network), "layer 'fc'", "never added", "add(name, cell)"));
}

/// The error of a network whose forward calls `look` with the output of the layer "encoder.fc".
std::string refusal(const std::function<void(const Value&)>& look) {
  Block encoder;
  Written network;
  network.add("encoder", encoder);
  network.body = [&](Values x) -> Values {
    const Value hidden = encoder.fc(x[0]);
    look(hidden);
    return {hidden};
  };
  return refusal_of(network);
}

TEST(SymbolicValues, have_no_contents) {
  EXPECT_TRUE(says(refusal([](const Value& v) { static_cast<void>(v.size(0)); }), "the shape of 'encoder.fc'",
                   "PipelineOptions::example_inputs", "penstock::apply"));
  for (const auto look :
       {+[](const Value& v) { static_cast<void>(v ? 1 : 0); }, +[](const Value& v) { static_cast<void>(v.tensor()); }})
    EXPECT_TRUE(says(refusal(look), "forward reads the contents of 'encoder.fc'", "none while the network is traced",
                     "penstock::apply(name, function, {values})"));
}

TEST(SymbolicValues, do_not_mix_with_tensors) {
  const std::string text = refusal([](const Value& v) {
    apply(
        "add", [](const Tensors& x) { return x[0] + x[1]; }, Values{v, torch::ones({1})});
  });
  EXPECT_TRUE(says(text, "'add'", "'encoder.fc'", "a real tensor", "penstock::apply")) << text;
}

TEST(SymbolicValues, are_named_after_the_network_s_input) {
  Written network;
  network.body = [](Values x) -> Values { return x[1].size(0) > 1 ? x : Values{x[0]}; };
  EXPECT_TRUE(says(refusal_of(network, 2), "'input 1'"));
}

TEST(Names, are_plain_text) {
  for (const char* name : {"a\nb", "a\x7f", "\t", "\xff", "caf\xc3"}) {
    const std::string text = error_text<ScheduleError>([&] { Written().add(name, linear); });
    EXPECT_TRUE(says(text, "cannot name a layer", "UTF-8 text without")) << text;
  }
  EXPECT_TRUE(says(error_text<ScheduleError>([] { Written().add("a\nb", linear); }), "'a\\x0ab' c"));
  EXPECT_NO_THROW(Written().add("caf\xc3\xa9 1", linear));
  const std::string text = refusal([](const Value& v) {
    apply(
        "a\nb", [](const Tensors& x) { return x; }, {v}, 1);
    return v;
  });
  EXPECT_TRUE(says(text, "'a\\x0ab' cannot name a function")) << text;
}

struct Forgetful : Cell {
  struct Part : Cell {
    Layer used = add("used", [] { return torch::nn::Linear(2, 2); });
    Layer spare = add("spare", [] { return torch::nn::Linear(2, 2); });
    Value forward(Value x) override { return used(x); }
  };
  Part part;
  Layer owner = add("home", [] { return torch::nn::Linear(2, 2); });
  Forgetful() {
    add("part", part);
    part.used.tie("weight", owner, "weight");  // so that owner is used, although it is not called
  }
  Value forward(Value x) override { return part(x); }
};

TEST(Layers, not_called_by_forward_are_listed) {
  Forgetful network;
  Graph graph = trace_graph(network);
  EXPECT_EQ(graph.uncalled, std::vector<std::string>{"part.spare"});
  const StagedGraph staged = partition_graph(std::move(graph), {StageId(0)}, 1);
  ASSERT_EQ(staged.warnings.size(), 1U);
  EXPECT_TRUE(says(staged.warnings[0], "'part.spare'", "never calls it")) << staged.warnings[0];
}

TEST(RealValues, have_contents) {
  const Value value(torch::tensor({1.0F}));
  EXPECT_FALSE(value.is_symbolic());
  EXPECT_EQ(value.size(0), 1);
  EXPECT_TRUE(value ? true : false);
  EXPECT_FALSE(Value(torch::tensor({0.0F})) ? true : false);
}

TEST(Apply, checks_the_number_of_results) {
  const auto split_in_three = [](const Tensors& x) { return x[0].chunk(3); };
  EXPECT_EQ(apply("split", split_in_three, {torch::arange(6)}, 3).size(), 3U);
  EXPECT_EQ(error_text<ScheduleError>([&] { apply("split", split_in_three, {torch::arange(6)}, 2); }),
            "'split' returned 3 values, but is declared to return 2");
}

}  // namespace
}  // namespace penstock::test::graph_test
