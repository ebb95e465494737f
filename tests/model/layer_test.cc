// Layers: initial weights, calls of modules with several inputs and outputs, and sharing and copying of parameters.
#include <cmath>
#include <set>
#include <stdexcept>

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/model/graph.h"
#include "penstock/model/model.h"
#include "penstock/pipeline/pipeline.h"
#include "tests/base/error_text.h"

namespace penstock::test::layer_test {
namespace {

LayerFactory linear(std::int64_t in, std::int64_t out) {
  return layer_factory([in, out] { return torch::nn::Linear(in, out); });
}

torch::Tensor weight(const BuiltLayer& layer) { return layer.module->named_parameters()["weight"]; }

TEST(BuildLayer, weights_come_from_seed_and_name_alone) {
  torch::manual_seed(1);
  const torch::Tensor once = weight(build_layer(linear(8, 8), {.seed = 5, .layer = "encoder.fc"}));
  torch::manual_seed(2);
  torch::rand({17});
  const torch::Tensor again = weight(build_layer(linear(8, 8), {.seed = 5, .layer = "encoder.fc"}));
  EXPECT_TRUE(torch::equal(once, again));
  EXPECT_FALSE(torch::equal(once, weight(build_layer(linear(8, 8), {.seed = 6, .layer = "encoder.fc"}))));
  EXPECT_FALSE(torch::equal(once, weight(build_layer(linear(8, 8), {.seed = 5, .layer = "encoder.fd"}))));
}

TEST(BuildLayer, similar_seeds_and_names_give_unrelated_weights) {
  std::set<float> seen;
  for (std::uint64_t seed = 0; seed < 8; ++seed)
    for (int layer = 0; layer < 8; ++layer)
      seen.insert(weight(build_layer(linear(4, 4), {.seed = seed, .layer = say("layer", layer)}))[0][0].item<float>());
  EXPECT_EQ(seen.size(), 64U);
}

TEST(BuildLayer, restores_the_default_generator) {
  torch::manual_seed(3);
  torch::randn({3});  // an odd number, so that the generator caches the second number of a pair
  const torch::Tensor before = at::detail::getDefaultCPUGenerator().get_state();
  build_layer(linear(8, 8), {.seed = 5, .layer = "fc"});
  EXPECT_TRUE(torch::equal(before, at::detail::getDefaultCPUGenerator().get_state()));

  const LayerFactory failing{[]() -> BuiltLayer {
                               torch::rand({5});
                               throw std::runtime_error("no weights today");
                             },
                             1};
  EXPECT_EQ(error_text<std::runtime_error>([&] { build_layer(failing, {.seed = 5, .layer = "fc"}); }),
            "no weights today");
  EXPECT_TRUE(torch::equal(before, at::detail::getDefaultCPUGenerator().get_state()));
  // The lock is free again.
  EXPECT_NO_THROW(build_layer(linear(1, 1), {.seed = 5, .layer = "fc"}));
}

TEST(ShareValues, shares_memory_but_not_gradients) {
  const BuiltLayer owner = build_layer(linear(3, 2), {.seed = 1, .layer = "a"});
  const BuiltLayer other = build_layer(linear(3, 2), {.seed = 2, .layer = "a"});
  share_values(*other.module, *owner.module);
  {
    torch::NoGradGuard no_grad;
    weight(owner).fill_(7);
  }
  EXPECT_TRUE(torch::equal(weight(other), torch::full({2, 3}, 7.0F)));
  other.forward({torch::ones({1, 3})})[0].sum().backward();
  EXPECT_TRUE(weight(other).grad().defined());
  EXPECT_FALSE(weight(owner).grad().defined());
}

TEST(ShareValues, shares_buffers) {
  const auto norm = layer_factory([] { return torch::nn::BatchNorm1d(4); });
  const BuiltLayer owner = build_layer(norm, {}), other = build_layer(norm, {});
  share_values(*other.module, *owner.module);
  other.forward({torch::randn({5, 4})});
  EXPECT_TRUE(
      torch::equal(owner.module->named_buffers()["running_mean"], other.module->named_buffers()["running_mean"]));
  EXPECT_GT(owner.module->named_buffers()["running_mean"].abs().sum().item<float>(), 0);

  const auto plain =
      layer_factory([] { return torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(4).track_running_stats(false)); });
  EXPECT_NO_THROW(share_values(*build_layer(plain, {}).module, *build_layer(plain, {}).module));
}

TEST(ShareValues, refuses_modules_that_differ) {
  const auto refusal = [](const LayerFactory& to, const LayerFactory& from) {
    const BuiltLayer a = build_layer(to, {}), b = build_layer(from, {});
    const std::string shared = error_text<ScheduleError>([&] { share_values(*a.module, *b.module); });
    EXPECT_EQ(shared, error_text<ScheduleError>([&] { copy_values(*a.module, *b.module); }));
    return shared;
  };
  const LayerFactory one_tensor =
      layer_factory([] { return torch::nn::Linear(torch::nn::LinearOptions(2, 2).bias(false)); });
  EXPECT_TRUE(says(refusal(one_tensor, linear(2, 2)), "a layer's factory made 2 tensors the first time and 1 later: "));
  EXPECT_TRUE(says(refusal(linear(2, 2), linear(1, 2)), "'weight' of shape [2, 1] the first time and [2, 2] later: "));
  const LayerFactory renamed =
      layer_factory([] { return torch::nn::Bilinear(torch::nn::BilinearOptions(1, 1, 1).bias(false)); });
  const LayerFactory embedding = layer_factory([] { return torch::nn::PReLU(); });
  EXPECT_TRUE(says(refusal(renamed, embedding), "'weight' of shape [1]", "[1, 1, 1]"));
}

TEST(CopyValues, copies_values_and_requires_grad) {
  const BuiltLayer from = build_layer(linear(3, 2), {.seed = 1, .layer = "a"});
  const BuiltLayer to = build_layer(linear(3, 2), {.seed = 2, .layer = "a"});
  weight(from).requires_grad_(false);
  copy_values(*to.module, *from.module);
  EXPECT_TRUE(torch::equal(weight(to), weight(from)));
  EXPECT_FALSE(weight(to).requires_grad());
  EXPECT_TRUE(to.module->named_parameters()["bias"].requires_grad());
  EXPECT_NE(weight(to).data_ptr(), weight(from).data_ptr());
}

TEST(Annotations, are_shared_by_copies_of_a_layer_and_copied_between_layers) {
  struct Network : Cell {
    Layer a = add("a", [] { return torch::nn::ReLU(); });
    Layer b = add("b", [] { return torch::nn::ReLU(); });
    Value forward(Value x) override { return b(a(x)); }
  } network;
  Layer copy = network.a;
  copy.pipeline_stage = 1;
  EXPECT_EQ(network.a.pipeline_stage.value(), 1);

  network.b.pipeline_stage = network.a.pipeline_stage;
  network.a.pipeline_stage = 0;
  EXPECT_EQ(network.b.pipeline_stage.value(), 1);
  EXPECT_EQ(trace_graph(network).nodes[1].stage, 1);

  copy = network.b;  // now a handle of "b"; "a" is unchanged
  copy.pipeline_stage = 2;
  EXPECT_EQ(network.b.pipeline_stage.value(), 2);
  EXPECT_EQ(network.a.pipeline_stage.value(), 0);
}

struct Blocks : Cell {
  struct Block : Cell {
    Layer fc = add("fc", [] { return torch::nn::Linear(4, 4); });
    Value forward(Value x) override { return relu(fc(x)); }
  };
  Blocks() {
    add("one", one);
    add("two", two);
  }
  Layer last = add("last", [] { return torch::nn::Linear(4, 2); });
  Value forward(Value x) override { return last(two(one(x))); }
  Block one, two;
};

TEST(Standalone, equals_the_same_modules_of_torch) {
  Blocks network;
  const torch::Tensor x = torch::randn({3, 4});
  const torch::Tensor y = network(Value(x)).tensor();

  const StateDict p = network.state_dict();
  EXPECT_EQ(p.size(), 6U);
  torch::Tensor plain = torch::relu(torch::nn::functional::linear(x, p["one.fc.weight"], p["one.fc.bias"]));
  plain = torch::relu(torch::nn::functional::linear(plain, p["two.fc.weight"], p["two.fc.bias"]));
  plain = torch::nn::functional::linear(plain, p["last.weight"], p["last.bias"]);
  EXPECT_TRUE(torch::equal(y, plain));

  // Equal layers in different Cells have different initial weights: the full name counts.
  EXPECT_FALSE(torch::equal(p["one.fc.weight"], p["two.fc.weight"]));
  EXPECT_TRUE(torch::equal(p["two.fc.weight"], weight(build_layer(linear(4, 4), {.layer = "two.fc"}))));
}

TEST(Standalone, a_pipeline_starts_from_its_values) {
  Blocks network;
  std::vector<torch::Tensor> parameters;
  for (auto& [name, value] : network.named_parameters()) parameters.push_back(value);
  torch::optim::SGD optimizer(parameters, 0.1);
  const torch::Tensor x = torch::randn({6, 4}), target = torch::randint(0, 2, {6}, torch::kInt64);
  torch::nn::functional::cross_entropy(network(Value(x)).tensor(), target).backward();
  optimizer.step();

  network.one.pipeline_stage = 0;
  network.two.pipeline_stage = 1;
  network.last.pipeline_stage = 1;
  World world({.stages = 2});
  Pipeline pipeline(world, network, cross_entropy, {.micro_batches = 2});
  const auto state = pipeline.state_dict();
  ASSERT_EQ(state.size(), 6U);
  for (const auto& [name, value] : network.named_parameters()) EXPECT_TRUE(torch::equal(value, state[name])) << name;
  EXPECT_NEAR(pipeline.evaluate(x, target).loss(),
              torch::nn::functional::cross_entropy(network(Value(x)).tensor(), target).item<double>(), 1e-6);
}

/// Checks that the layer, standalone and traced, equals the torch module with the same parameters.
template <class Make, class Plain>
void expect_outputs(const Make& make, const Tensors& inputs, const Plain& plain) {
  struct Network : Cell {
    explicit Network(const Make& m) : layer(add("layer", m)) {}
    Layer layer;
    Values forward_many(Values x) override { return layer.call(x); }
  } network(make);
  const Values outputs = network(Values(inputs.begin(), inputs.end()));
  auto module = make();
  network.named_parameters();
  const Graph graph = trace_graph(network, static_cast<int>(inputs.size()));
  copy_values(*module, *graph.nodes[0].layer->standalone->module);
  const Tensors expected = plain(module);
  ASSERT_EQ(outputs.size(), expected.size());
  EXPECT_EQ(graph.nodes[0].outputs, static_cast<int>(expected.size()));
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(torch::equal(outputs[i].tensor(), expected[i])) << i;
}

TEST(Modules, with_nested_tuples_and_several_inputs) {
  const torch::Tensor sequence = torch::randn({5, 2, 3}), hidden = torch::randn({1, 2, 4});
  const auto gru = [] { return torch::nn::GRU(3, 4); };
  expect_outputs(gru, {sequence}, [&](auto& m) {
    auto [y, h] = m->forward(sequence);
    return Tensors{y, h};
  });
  expect_outputs(gru, {sequence, hidden}, [&](auto& m) {
    auto [y, h] = m->forward(sequence, hidden);
    return Tensors{y, h};
  });
  expect_outputs([] { return torch::nn::LSTM(3, 4); }, {sequence},
                 [&](auto& m) {
                   auto [y, state] = m->forward(sequence);
                   return Tensors{y, std::get<0>(state), std::get<1>(state)};
                 });
  expect_outputs([] { return torch::nn::MultiheadAttention(4, 2); }, {hidden, hidden, hidden},
                 [&](auto& m) {
                   auto [y, weights] = m->forward(hidden, hidden, hidden);
                   return Tensors{y, weights};
                 });
}

TEST(Modules, may_take_up_to_eight_tensors) {
  struct Five : torch::nn::Module {
    Tensors forward(const torch::Tensor& a, const torch::Tensor& b, torch::Tensor c, const torch::Tensor& d,
                    const torch::Tensor& e, const torch::Tensor& f = {}) {
      return {a + b, c * d - e, f.defined() ? f : e};
    }
  };
  struct Eight : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& a, const torch::Tensor& b, const torch::Tensor& c,
                          const torch::Tensor& d, const torch::Tensor& e, const torch::Tensor& f,
                          const torch::Tensor& g, const torch::Tensor& h) {
      return a - b - c - d - e - f - g - h;
    }
  };
  Tensors x;
  for (int i = 0; i < 8; ++i) x.push_back(torch::full({2}, static_cast<float>(i)));
  const BuiltLayer five = build_layer(layer_factory([] { return std::make_shared<Five>(); }), {});
  EXPECT_TRUE(torch::equal(five.forward({x[0], x[1], x[2], x[3], x[4]})[1], torch::full({2}, 2.0F)));
  EXPECT_TRUE(torch::equal(five.forward({x[0], x[1], x[2], x[3], x[4], x[5]})[2], x[5]));
  EXPECT_TRUE(says(error_text<ScheduleError>([&] { five.forward({x[0], x[1], x[2], x[3]}); }), "take 4 tensors"));
  const BuiltLayer eight = build_layer(layer_factory([] { return std::make_shared<Eight>(); }), {});
  EXPECT_TRUE(torch::equal(eight.forward(x)[0], torch::full({2}, -28.0F)));
  EXPECT_TRUE(says(error_text<ScheduleError>([&] { eight.forward(Tensors(9, x[0])); }), "take 9 tensors"));
}

TEST(Modules, can_be_shared_pointers) {
  struct Twice : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& x) { return x * 2; }
  };
  const BuiltLayer layer = build_layer(layer_factory([] { return std::make_shared<Twice>(); }), {});
  EXPECT_TRUE(torch::equal(layer.forward({torch::ones({2})})[0], torch::full({2}, 2.0F)));
}

TEST(Modules, report_a_wrong_number_of_inputs) {
  const BuiltLayer layer = build_layer(linear(2, 2), {});
  const std::string text = error_text<ScheduleError>([&] { layer.forward({torch::ones({2}), torch::ones({2})}); });
  EXPECT_TRUE(says(text, "Linear", "does not take 2 tensors")) << text;
}

}  // namespace
}  // namespace penstock::test::layer_test
