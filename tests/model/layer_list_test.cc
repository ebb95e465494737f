// Cells made from torch modules: by the names of their submodules, from factories, from a Sequential.
#include "penstock/model/layer_list.h"

#include <atomic>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/model/functions.h"
#include "penstock/model/graph.h"
#include "penstock/model/stages.h"
#include "penstock/pipeline/pipeline.h"
#include "tests/base/error_text.h"

namespace penstock::test::layer_list_test {
namespace {

/// A module class that is not torch's.
struct BlockImpl : torch::nn::Cloneable<BlockImpl> {
  BlockImpl() { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(6, 6));
    second = register_module("second", torch::nn::Linear(6, 6));
  }
  torch::Tensor forward(const torch::Tensor& x) { return x + second(torch::tanh(first(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(Block);

struct NetworkImpl : torch::nn::Cloneable<NetworkImpl> {
  NetworkImpl() { reset(); }
  void reset() override {
    in = register_module("in", torch::nn::Linear(12, 6));
    relu = register_module("relu", torch::nn::ReLU());
    body = register_module("body", torch::nn::Sequential());
    body->push_back("block", Block());
    body->push_back("mix", torch::nn::Linear(6, 6));
    list = register_module("list", torch::nn::ModuleList(torch::nn::Linear(6, 6), torch::nn::Sigmoid()));
    out = register_module("out", torch::nn::Linear(6, 3));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return out(list[1]->as<torch::nn::Sigmoid>()->forward(
        list[0]->as<torch::nn::Linear>()->forward(body->forward(relu(in(x.flatten(1)))))));
  }
  torch::nn::Linear in{nullptr}, out{nullptr};
  torch::nn::ReLU relu;
  torch::nn::Sequential body{nullptr};
  torch::nn::ModuleList list{nullptr};
};
TORCH_MODULE(Network);

const auto flat = [](auto x) { return x.flatten(1); };
const auto twice = [](auto x) { return x * 2; };
const auto plus_one = [](auto x) { return x + 1; };

using Names = std::vector<std::string>;

Names names(Cell& network) {
  Names all;
  for (const Node& node : trace_graph(network).nodes) all.push_back(node.name);
  return all;
}

torch::Tensor run(Cell& network, const torch::Tensor& x) { return network(Value(x)).tensor(); }

template <class Module>
std::string refusal_of(const Module& module, const ExecutionSequence& sequence) {
  return error_text<ScheduleError>([&] { layer_list(module, sequence); });
}

std::string refusal(const ExecutionSequence& sequence) { return refusal_of(Network(), sequence); }

const ExecutionSequence whole{{flat, "front"}, "in", "relu", "body", "list.0", "list.1", "out"};

TEST(LayerList, equals_the_module_in_the_order_of_the_names) {
  Network module;
  const auto network = layer_list(module, whole);
  EXPECT_EQ(names(*network), (Names{"in.front", "in", "relu", "body", "list.0", "list.1", "out"}));
  const torch::Tensor x = torch::randn({5, 3, 4});
  EXPECT_TRUE(torch::equal(run(*network, x), module->forward(x)));
  const auto theirs = module->named_parameters();
  const auto ours = network->named_parameters();
  EXPECT_EQ(ours.size(), theirs.size());
  for (const auto& [name, value] : ours) EXPECT_TRUE(torch::equal(value, theirs[name])) << name;
}

// Without a sequence, the containers are unrolled in order.
TEST(LayerList, names_reach_into_submodules) {
  const Names expected{"in", "relu", "body.block", "body.mix", "list.0", "list.1", "out"};
  for (const ExecutionSequence& sequence : {ExecutionSequence(expected.begin(), expected.end()), ExecutionSequence{}}) {
    Network module;
    const auto network = layer_list(module, sequence);
    EXPECT_EQ(names(*network), expected);
    const torch::Tensor x = torch::randn({5, 12});
    EXPECT_TRUE(torch::equal(run(*network, x), module->forward(x)));
    EXPECT_EQ(network->named_parameters().size(), module->named_parameters().size());
  }
}

TEST(LayerList, accepts_a_sequential_and_custom_module_classes) {
  torch::nn::Sequential modules(torch::nn::Linear(4, 6), Block());
  const torch::Tensor x = torch::randn({5, 4});
  EXPECT_TRUE(torch::equal(run(*layer_list(modules), x), modules->forward(x)));

  struct Holder : torch::nn::Module {
    Block block = register_module("block", Block());
  };
  const auto holder = std::make_shared<Holder>();
  const torch::Tensor y = torch::randn({5, 6});
  EXPECT_TRUE(torch::equal(run(*layer_list<BlockImpl>(holder, {"block"}), y), holder->block->forward(y)));
  EXPECT_TRUE(torch::equal(run(*layer_list<BlockImpl>(holder), y), holder->block->forward(y)));
  EXPECT_TRUE(says(refusal_of(holder, {"block"}), "'block' is a ", "BlockImpl", "layer_list<Kind>"));
}

TEST(LayerList, is_a_copy_with_the_module_s_requires_grad) {
  Network module;
  module->in->weight.requires_grad_(false);
  const auto network = layer_list(module, whole);
  World world({.stages = 2});
  Pipeline pipeline(world, *network, squared_error, {.micro_batches = 2, .partition = "body"});
  const torch::Tensor before = module->out->weight.detach().clone();
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.5); });
  const torch::Tensor x = torch::randn({5, 12}), target = torch::randn({5, 3});
  const double loss = pipeline.train_step(x, target).loss();
  EXPECT_NEAR(loss, torch::mse_loss(module->forward(x), target).item<double>(), 1e-6);
  EXPECT_TRUE(torch::equal(module->out->weight, before));
  const auto state = pipeline.state_dict();
  for (const auto& item : module->named_parameters())
    EXPECT_EQ(torch::equal(state[item.key()], item.value()), item.key() == "in.weight") << item.key();
}

TEST(LayerList, a_repeated_name_is_one_layer) {
  torch::nn::Sequential module;
  module->push_back("a", torch::nn::Linear(4, 4));
  module->push_back("bend", torch::nn::Tanh());
  const auto network = layer_list(module, {"a", "bend", "a"});
  EXPECT_EQ(names(*network), (Names{"a", "bend", "a_2"}));
  EXPECT_EQ(network->named_parameters().size(), 2U);
  const torch::Tensor x = torch::randn({5, 4});
  torch::nn::AnyModule a = *module->begin();
  EXPECT_TRUE(torch::equal(run(*network, x), a.forward(torch::tanh(a.forward(x)))));
}

TEST(LayerList, one_module_under_two_names_is_one_layer) {
  torch::nn::Linear shared(4, 4);
  torch::nn::Sequential module(shared, torch::nn::Tanh(), shared);
  const auto network = layer_list(module, {"0", "1", "2"});
  EXPECT_EQ(names(*network), (Names{"0", "1", "0_2"}));
  EXPECT_EQ(network->named_parameters().size(), 2U);
}

TEST(LayerList, functions_behind_and_in_front_run_in_order) {
  torch::nn::Sequential module;
  module->push_back("a", torch::nn::Identity());
  module->push_back("b", torch::nn::Identity());
  // a(x*2 + 1), then *2, then +1 in front of b.
  const auto network = layer_list(
      module, {{twice, "front"}, {plus_one, "front"}, "a", {plus_one, "front"}, {twice, "behind"}, "b", {twice}});
  EXPECT_EQ(names(*network), (Names{"a.front", "a.front_2", "a", "a.behind", "b.front", "b", "b.behind"}));
  EXPECT_EQ(run(*network, torch::tensor({3.0})).item<double>(), (((3 * 2 + 1) * 2) + 1) * 2);
}

TEST(LayerList, functions_run_on_the_stage_of_their_name) {
  torch::nn::Sequential module;
  for (const char* name : {"a", "b", "c"}) module->push_back(name, torch::nn::Linear(2, 2));
  const auto network =
      layer_list(module, {"a", {twice, "front"}, boundary_here, {plus_one, "behind"}, "b", boundary_here, "c"});
  std::vector<int> stages;
  for (const Node& node : trace_graph(*network).nodes) stages.push_back(node.stage.value_or(-1));
  EXPECT_EQ(names(*network), (Names{"a", "a.behind", "b.front", "b", "c"}));
  EXPECT_EQ(stages, (std::vector<int>{0, 0, 1, 1, 2}));
  World world({.stages = 3});
  Pipeline pipeline(world, *network, squared_error);
  EXPECT_EQ(describe_stages(pipeline), (Names{"stage 0: a, a.behind", "stage 1: b.front, b", "stage 2: c"}));
}

TEST(LayerList, functions_of_several_values) {
  torch::nn::Sequential module;
  module->push_back("a", torch::nn::Identity());
  const auto halves = [](const torch::Tensor& x) { return std::make_tuple(x.narrow(1, 0, 1), x.narrow(1, 1, 1)); };
  const auto difference = [](const torch::Tensor& x, const torch::Tensor& y) { return x - y; };
  const auto network = layer_list(module, {"a", halves, difference});
  EXPECT_EQ(run(*network, torch::tensor({{5.0, 3.0}})).item<double>(), 2);

  EXPECT_TRUE(says(refusal_of(module, {"a", halves, twice}),
                   "'a.behind' takes 1 value, but 'a.behind' returns 2 values", "put a function"));
  EXPECT_TRUE(says(refusal_of(module, {"a", difference}), "'a.behind' takes 2 values, but 'a' returns 1 value"));
}

TEST(LayerList, refuses_a_wrong_number_of_values) {
  struct Recurrent : torch::nn::Module {
    torch::nn::LSTM lstm = register_module("lstm", torch::nn::LSTM(4, 4));
    torch::nn::Linear out = register_module("out", torch::nn::Linear(4, 2));
  };
  const auto module = std::make_shared<Recurrent>();
  EXPECT_TRUE(says(refusal_of(module, {"lstm", "out"}), "'out' takes 1 value, but 'lstm' returns 3 values"));
  const auto output = [](const torch::Tensor& x, const torch::Tensor&, const torch::Tensor&) { return x; };
  const torch::Tensor x = torch::randn({5, 3, 4});
  EXPECT_TRUE(
      torch::equal(run(*layer_list(module, {"lstm", output, "out"}), x), module->out(std::get<0>(module->lstm(x)))));
}

TEST(LayerList, refuses_invalid_places) {
  EXPECT_TRUE(says(refusal({{flat, "before"}, "in"}), "'before'", "\"front\"", "\"behind\""));
  EXPECT_TRUE(says(refusal({{flat, "behind"}, "in"}), "starts with a function", "set its place to \"front\""));
  EXPECT_TRUE(says(refusal({"in", {flat, "front"}}), "\"front\" ends the sequence", "set its place to \"behind\""));
}

TEST(LayerList, refuses_invalid_names) {
  EXPECT_EQ(refusal({"in", "rely"}),
            "the sequence names 'rely', but no submodule is called that: did you mean 'relu'?");
  EXPECT_TRUE(says(refusal({"in", "body.mux"}), "'body.mix'"));
  EXPECT_TRUE(says(refusal({"in", "list"}), "'list' is a ", "ModuleList", "'list.0'"));
  for (const ExecutionSequence& nested : {ExecutionSequence{"body", "body.mix"}, ExecutionSequence{"body.mix", "body"}})
    EXPECT_TRUE(says(refusal(nested), "'body' and 'body.mix', which is inside it: name one of the two"));
}

TEST(LayerList, refuses_invalid_boundaries) {
  EXPECT_TRUE(says(refusal({boundary_here, "in", "out"}), "before the first name"));
  EXPECT_TRUE(says(refusal({"in", boundary_here, boundary_here, "out"}), "after another one"));
  EXPECT_TRUE(says(refusal({"in", "out", boundary_here}), "ends with boundary_here"));
  EXPECT_TRUE(
      says(refusal({"list.0", boundary_here, "out", "list.0"}), "'list.0' is called on stage 0 and on stage 1"));
}

TEST(LayerList, a_shared_parameter_is_tied) {
  struct Tied : torch::nn::Module {
    Tied() { decode->weight = encode->weight; }
    torch::nn::Linear encode = register_module("encode", torch::nn::Linear(4, 4));
    torch::nn::Linear decode = register_module("decode", torch::nn::Linear(4, 4));
  };
  const auto module = std::make_shared<Tied>();
  const auto network = layer_list(module, {"encode", boundary_here, "decode"});
  const torch::Tensor x = torch::randn({5, 4}), target = torch::randn({5, 4});
  EXPECT_TRUE(torch::equal(run(*network, x), module->decode(module->encode(x))));

  World world({.stages = 2});
  Pipeline pipeline(world, *network, squared_error);
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.5); });
  pipeline.train_step(x, target).wait();
  torch::mse_loss(module->decode(module->encode(x)), target).backward();
  const torch::Tensor expected = (module->encode->weight - 0.5 * module->encode->weight.grad()).detach();
  EXPECT_TRUE(torch::allclose(pipeline.state_dict()["encode.weight"], expected, 1e-5, 1e-6));
}

TEST(LayerList, refuses_a_module_without_clone) {
  struct Plain : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& x) { return x; }
  };
  struct Holder : torch::nn::Module {
    std::shared_ptr<Plain> plain = register_module("plain", std::make_shared<Plain>());
  };
  const auto network = layer_list<Plain>(std::make_shared<Holder>(), {"plain"});
  EXPECT_TRUE(says(error_text<ScheduleError>([&] { run(*network, torch::ones({1})); }), "'plain' cannot be copied",
                   "torch::nn::Cloneable"));
}

TEST(LayerList, warns_about_parameters_that_are_not_named) {
  testing::internal::CaptureStderr();
  layer_list(Network(), {"in", "relu", "list.1", "out"});
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(says(told, "leaves out 'body.block.first.weight' and 7 more parameters", "neither run nor trained"))
      << told;
}

/// Counts its instances.
struct HeavyImpl : torch::nn::Module {
  explicit HeavyImpl(int size) : weight(register_parameter("weight", torch::randn({size, size}))) { ++alive; }
  ~HeavyImpl() override { --alive; }
  torch::Tensor forward(const torch::Tensor& x) { return x.mm(weight); }
  torch::Tensor weight;
  static inline std::atomic<int> alive{0};
};

TEST(LayerListOfFactories, builds_only_the_layers_of_its_ranks) {
  const auto heavy = [] { return std::make_shared<HeavyImpl>(6); };
  const auto network = layer_list({{"body.first", heavy},
                                   {[](auto x) { return torch::tanh(x); }, "behind"},
                                   boundary_here,
                                   {"body.second", heavy},
                                   "body.second",
                                   {"out", [] { return torch::nn::Linear(6, 3); }}});
  EXPECT_EQ(HeavyImpl::alive, 0);
  EXPECT_EQ(names(*network), (Names{"body.first", "body.first.behind", "body.second", "body.second_2", "out"}));
  World world({.stages = 2});
  Pipeline pipeline(world, *network, cross_entropy, {.seed = 5});
  EXPECT_EQ(HeavyImpl::alive, 3);  // a module for each call
  struct Written : Cell {
    struct Body : Cell {
      Layer first = add("first", [] { return std::make_shared<HeavyImpl>(6); });
      Layer second = add("second", [] { return std::make_shared<HeavyImpl>(6); });
    } body;
    Layer out = add("out", [] { return torch::nn::Linear(6, 3); });
    Written() { add("body", body); }
    Value forward(Value x) override { return out(body.second(body.second(tanh(body.first(x))))); }
  } written;
  torch::manual_seed(1);
  const torch::Tensor x = torch::randn({5, 6});
  written.parameters(5);
  EXPECT_TRUE(written(x).tensor().equal(pipeline.infer(x).output()));
}

TEST(LayerListOfFactories, refuses_names_without_a_factory) {
  const auto linear = [] { return torch::nn::Linear(6, 6); };
  const auto complaint = [](const ExecutionSequence& all) {
    return error_text<ScheduleError>([&] { layer_list(all); });
  };
  EXPECT_TRUE(says(complaint({{"a", linear}, "aa"}), "'aa'", "did you mean 'a'"));
  EXPECT_TRUE(says(complaint({{"a", linear}, {"a", linear}}), "two layers", "'a'"));
  EXPECT_TRUE(says(complaint({"a"}), "'a'", "factory"));
  EXPECT_TRUE(says(complaint({}), "empty"));
}

TEST(FromSequential, names_values_and_results_equal_those_of_torch) {
  torch::nn::Sequential modules(torch::nn::Linear(4, 8), torch::nn::ReLU(), torch::nn::Linear(8, 2));
  const auto network = from_sequential(modules);
  EXPECT_EQ(names(*network), (Names{"0", "1", "2"}));
  const torch::Tensor x = torch::randn({3, 4});
  EXPECT_TRUE(torch::equal(run(*network, x), modules->forward(x)));
  const auto theirs = modules->named_parameters();
  const auto ours = network->named_parameters();
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& [name, value] : ours) EXPECT_TRUE(torch::equal(value, theirs[name])) << name;
  torch::nn::Sequential named;
  for (const char* name : {"in", "out"}) named->push_back(name, torch::nn::Linear(4, 4));
  EXPECT_EQ(names(*from_sequential(named)), (Names{"in", "out"}));
  EXPECT_TRUE(
      says(error_text<ScheduleError>([] { from_sequential(torch::nn::Sequential()); }), "empty", "add a module"));
}

TEST(FromSequential, a_repeated_module_is_one_layer) {
  torch::nn::Linear shared(4, 4);
  torch::nn::Sequential modules(shared, torch::nn::ReLU(), shared);
  const auto network = from_sequential(modules);
  EXPECT_EQ(names(*network), (Names{"0", "1", "0_2"}));
  EXPECT_EQ(network->named_parameters().size(), 2U);
  const torch::Tensor x = torch::randn({3, 4});
  EXPECT_TRUE(torch::equal(run(*network, x), modules->forward(x)));

  // It trains as one layer: the gradient is the sum over both uses.
  const torch::Tensor target = torch::randint(0, 4, {3}, torch::kInt64);
  World world({.stages = 1});
  Pipeline pipeline(world, *network, cross_entropy);
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.5); });
  pipeline.train_step(x, target).wait();
  torch::optim::SGD optimizer(modules->parameters(), 0.5);
  torch::nn::functional::cross_entropy(modules->forward(x), target).backward();
  torch::NoGradGuard no_grad;
  shared->weight.sub_(0.5 * shared->weight.grad());
  EXPECT_TRUE(torch::allclose(pipeline.state_dict()["0.weight"], shared->weight, 1e-5, 1e-6));
}

TEST(FromSequential, is_a_copy_with_the_modules_requires_grad) {
  torch::nn::Sequential modules(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2));
  modules->named_parameters()["0.weight"].requires_grad_(false);
  const auto network = from_sequential(modules);
  for (const auto& [name, value] : network->named_parameters()) EXPECT_EQ(value.requires_grad(), name != "0.weight");
  const torch::Tensor before = modules->named_parameters()["1.weight"].detach().clone();
  World world({.stages = 2});
  Pipeline pipeline(world, *network, squared_error, {.partition = "1"});
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.5); });
  pipeline.train_step(torch::randn({3, 2}), torch::randn({3, 2})).wait();
  const auto state = pipeline.state_dict();
  for (const auto& item : modules->named_parameters())
    EXPECT_EQ(torch::equal(state[item.key()], item.value()), item.key() == "0.weight") << item.key();
  EXPECT_TRUE(torch::equal(modules->named_parameters()["1.weight"], before));
}

}  // namespace
}  // namespace penstock::test::layer_list_test
